"""What users import beside a Kafka client of their choice. Nothing yet; nothing of ours is beneath it."""
