"""Row files as streams: JSON lines, JSON arrays and parquet, in and out, in constant memory."""
