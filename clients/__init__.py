"""What users import beside a Kafka client of their choice. Nothing of ours is beneath it."""
