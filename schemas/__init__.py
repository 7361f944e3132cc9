"""Events, records and markers as bytes and text: Avro messages, JSON Lines."""
