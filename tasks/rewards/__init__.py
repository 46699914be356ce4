"""What a trajectory is worth. A scorer reads stored trajectories and gives each a reward, or says why not."""
