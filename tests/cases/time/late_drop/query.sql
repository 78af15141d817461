SELECT event_no, System.Timestamp() AS s INTO out FROM toll TIMESTAMP BY event_time WHERE CAST(event_no AS bigint) > 9
