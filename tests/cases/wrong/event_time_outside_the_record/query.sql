SELECT k INTO out FROM a TIMESTAMP BY System.Timestamp()
