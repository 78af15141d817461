SELECT event_no, System.Timestamp() AS s INTO out FROM toll TIMESTAMP BY event_time
