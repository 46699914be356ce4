"""What lasts: records, schemas, the store, its SQL catalog, and MLflow. Imports nothing from above."""
