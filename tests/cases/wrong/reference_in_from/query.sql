SELECT code INTO out
FROM places
