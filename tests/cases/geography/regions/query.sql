SELECT COUNT(*) AS NumberOfRequests, RegionsRefDataInput.RegionName
FROM UserRequestStreamDataInput TIMESTAMP BY TripRequestedTime
JOIN RegionsRefDataInput ON st_within(UserRequestStreamDataInput.FromLocation, RegionsRefDataInput.Geofence) = 1
GROUP BY RegionsRefDataInput.RegionName, hoppingwindow(minute, 15, 15)
