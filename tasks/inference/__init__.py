"""Where tokens come from: a vLLM server that lives as long as its flow, or transformers in the process."""
