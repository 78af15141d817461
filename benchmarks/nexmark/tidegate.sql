-- Nexmark's queries as Tidegate computes them. {bid}, {auction}, {person} and {arrived} (bids by their arrival) stand for an input or
-- for a step over the one topic, see queries.py. Below each name stands what is computed, where SQL engines differ.
--
-- Results are final and never taken back, so a running result of the benchmark is here its value at the end of each day; days and
-- windows include their start, as the benchmark's do. Joins without a bound in time are joins within a day.

-- q0: pass on
SELECT auction, bidder, price, dateTime, extra INTO q0 FROM {bid}

-- q1: currency; a float where the benchmark has a decimal
SELECT auction, bidder, 0.908 * price AS price, dateTime, extra INTO q1 FROM {bid}

-- q2: selection
SELECT auction, price INTO q2 FROM {bid} WHERE auction % 123 = 0

-- q3: local items; auction and person within a day of each other, whichever comes first
SELECT p.name AS name, p.city AS city, p.state AS state, a.id AS id
INTO q3
FROM {auction} a JOIN {person} p ON a.seller = p.id AND DATEDIFF(day, a, p) BETWEEN -1 AND 1
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')

-- q4: mean final price by category, at the end of each day; no auction lasts beyond the next hour of the clock
WITH final AS (
    SELECT a.id AS id, a.category AS category, MAX(b.price) AS final
    FROM {auction} a JOIN {bid} b
        ON a.id = b.auction AND DATEDIFF(hour, a, b) BETWEEN 0 AND 1 AND b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category, {day})
SELECT category, AVG(final) AS final INTO q4 FROM final GROUP BY category, SnapshotWindow()

-- q5: hot items
WITH counts AS (
    SELECT auction, COUNT(*) AS num FROM {bid}
    GROUP BY auction, HoppingWindow(Duration(second, 10), Hop(second, 2), Offset(microsecond, -1))),
most AS (SELECT MAX(num) AS maxn FROM counts GROUP BY SnapshotWindow())
SELECT c.auction AS auction, c.num AS num INTO q5
FROM counts c JOIN most m ON DATEDIFF(second, c, m) = 0 AND c.num >= m.maxn

-- q6: mean price of the eleven auctions of a seller that were won last, at the end of each day
WITH won AS (
    SELECT TopOne() OVER (ORDER BY price DESC, dateTime) AS best FROM (
        SELECT a.id AS id, a.seller AS seller, b.price AS price, b.dateTime AS dateTime
        FROM {auction} a JOIN {bid} b
            ON a.id = b.auction AND DATEDIFF(hour, a, b) BETWEEN 0 AND 1 AND b.dateTime BETWEEN a.dateTime AND a.expires) pairs
    GROUP BY id, {day}),
latest AS (
    SELECT best.seller AS seller, CollectTop(11, best.price) OVER (ORDER BY CAST(best.dateTime AS datetime) DESC, best.id) AS prices
    FROM won GROUP BY best.seller, SnapshotWindow())
SELECT l.seller AS seller, AVG(CAST(p.ArrayValue.[value] AS bigint)) AS avg_price INTO q6
FROM latest l CROSS APPLY GetArrayElements(l.prices) AS p
GROUP BY l.seller, SnapshotWindow()

-- q7: highest bids of ten seconds; as in the benchmark a bid at the end of a window counts for both
WITH highest AS (
    SELECT MAX(price) AS maxprice, DATEADD(microsecond, 1, System.Timestamp()) AS ends
    FROM {bid} GROUP BY TumblingWindow(Duration(second, 10), Offset(microsecond, -1)))
SELECT b.auction AS auction, b.price AS price, b.bidder AS bidder, b.dateTime AS dateTime, b.extra AS extra INTO q7
FROM {bid} b JOIN highest h
    ON b.price = h.maxprice AND DATEDIFF(second, b, h) BETWEEN -1 AND 10 AND b.dateTime BETWEEN DATEADD(second, -10, h.ends) AND h.ends

-- q8: new users who sell
WITH p AS (SELECT id, name FROM {person} GROUP BY id, name, TumblingWindow(Duration(second, 10), Offset(microsecond, -1))),
a AS (SELECT seller FROM {auction} GROUP BY seller, TumblingWindow(Duration(second, 10), Offset(microsecond, -1)))
SELECT p.id AS id, p.name AS name, DATEADD(microsecond, -9999999, System.Timestamp()) AS stime INTO q8
FROM p JOIN a ON p.id = a.seller AND DATEDIFF(second, p, a) = 0

-- q9: winning bids, at the end of each day; of equal ones the first to come
WITH pairs AS (
    SELECT a.id AS id, a.itemName AS itemName, a.description AS description, a.initialBid AS initialBid, a.reserve AS reserve,
        a.dateTime AS dateTime, a.expires AS expires, a.seller AS seller, a.category AS category, a.extra AS extra,
        b.auction AS auction, b.bidder AS bidder, b.price AS price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
    FROM {auction} a JOIN {bid} b
        ON a.id = b.auction AND DATEDIFF(hour, a, b) BETWEEN 0 AND 1 AND b.dateTime BETWEEN a.dateTime AND a.expires),
won AS (SELECT TopOne() OVER (ORDER BY price DESC, bid_dateTime) AS w FROM pairs GROUP BY id, {day})
SELECT w.id AS id, w.itemName AS itemName, w.description AS description, w.initialBid AS initialBid, w.reserve AS reserve,
    w.dateTime AS dateTime, w.expires AS expires, w.seller AS seller, w.category AS category, w.extra AS extra,
    w.auction AS auction, w.bidder AS bidder, w.price AS price, w.bid_dateTime AS bid_dateTime, w.bid_extra AS bid_extra
INTO q9 FROM won

-- q10: log by day and minute
SELECT auction, bidder, price, dateTime, extra,
    SUBSTRING(CAST(dateTime AS nvarchar(max)), 1, 10) AS dt, SUBSTRING(CAST(dateTime AS nvarchar(max)), 12, 5) AS hm
INTO q10 FROM {bid}

-- q11: sessions of bidders; none lasts a day
SELECT bidder, COUNT(*) AS bid_count, MIN(dateTime) AS starttime, System.Timestamp() AS endtime INTO q11
FROM {bid} GROUP BY bidder, SessionWindow(Timeout(second, 10), MaxDuration(day, 1)) OVER (PARTITION BY bidder)

-- q12: bids by the time at which they arrive, which a replay repeats; the benchmark's are by the worker's clock
SELECT bidder, COUNT(*) AS bid_count,
    DATEADD(microsecond, -9999999, System.Timestamp()) AS starttime, DATEADD(microsecond, 1, System.Timestamp()) AS endtime
INTO q12 FROM {arrived} GROUP BY bidder, TumblingWindow(Duration(second, 10), Offset(microsecond, -1))

-- q13: side input
SELECT b.auction AS auction, b.bidder AS bidder, b.price AS price, b.dateTime AS dateTime, s.[value] AS [value] INTO q13
FROM {bid} b JOIN side_input s ON b.auction % 10000 = s.[key]

-- q14: calculation
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN DATEPART(hour, dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN DATEPART(hour, dateTime) <= 6 OR DATEPART(hour, dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    dateTime, extra, LEN(extra) - LEN(REPLACE(extra, 'c', '')) AS c_counts
INTO q14 FROM {bid} WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15: bids of a day
SELECT SUBSTRING(CAST(System.Timestamp() AS nvarchar(max)), 1, 10) AS [day], {ranks}
INTO q15 FROM {bid} GROUP BY {day}

-- q16: bids of a day by channel
SELECT channel, SUBSTRING(CAST(System.Timestamp() AS nvarchar(max)), 1, 10) AS [day],
    MAX(SUBSTRING(CAST(dateTime AS nvarchar(max)), 12, 5)) AS [minute], {ranks}
INTO q16 FROM {bid} GROUP BY channel, {day}

-- q17: bids of a day by auction; the mean is a float
SELECT auction, SUBSTRING(CAST(System.Timestamp() AS nvarchar(max)), 1, 10) AS [day], COUNT(*) AS total_bids,
    COUNT(CASE WHEN price < 10000 THEN 1 END) AS rank1_bids,
    COUNT(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS rank2_bids,
    COUNT(CASE WHEN price >= 1000000 THEN 1 END) AS rank3_bids,
    MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
INTO q17 FROM {bid} GROUP BY auction, {day}

-- q18: the last bid of a bidder on an auction, at the end of each day; of equally late ones the first to come
WITH latest AS (SELECT TopOne() OVER (ORDER BY dateTime DESC) AS b FROM {bid} GROUP BY bidder, auction, {day})
SELECT b.auction AS auction, b.bidder AS bidder, b.price AS price, b.channel AS channel, b.url AS url, b.dateTime AS dateTime,
    b.extra AS extra
INTO q18 FROM latest

-- q19: the ten highest bids on an auction, at the end of each day; of equal ones the first to come
WITH top AS (SELECT CollectTop(10) OVER (ORDER BY price DESC) AS best FROM {bid} GROUP BY auction, {day})
SELECT e.ArrayValue.[value].auction AS auction, e.ArrayValue.[value].bidder AS bidder, e.ArrayValue.[value].price AS price,
    e.ArrayValue.[value].channel AS channel, e.ArrayValue.[value].url AS url, e.ArrayValue.[value].dateTime AS dateTime,
    e.ArrayValue.[value].extra AS extra, e.ArrayValue.rank AS rank_number
INTO q19 FROM top CROSS APPLY GetArrayElements(top.best) AS e

-- q20: bids with their auctions, within a day of each other
SELECT b.auction AS auction, b.bidder AS bidder, b.price AS price, b.channel AS channel, b.url AS url, b.dateTime AS bid_dateTime,
    b.extra AS bid_extra, a.itemName AS itemName, a.description AS description, a.initialBid AS initialBid, a.reserve AS reserve,
    a.dateTime AS auction_dateTime, a.expires AS expires, a.seller AS seller, a.category AS category, a.extra AS auction_extra
INTO q20
FROM {bid} b JOIN {auction} a ON b.auction = a.id AND DATEDIFF(day, b, a) BETWEEN -1 AND 1
WHERE a.category = 10

-- q21: channel ids
WITH named AS (
    SELECT auction, bidder, price, channel, LOWER(channel) AS low,
        '&' + url + '&' AS url, CHARINDEX('&channel_id=', '&' + url) AS starts
    FROM {bid}),
cut AS (SELECT auction, bidder, price, channel, low, starts, SUBSTRING(url, starts + 12, LEN(url)) AS rest FROM named)
SELECT auction, bidder, price, channel,
    CASE low WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE LEFT(rest, CHARINDEX('&', rest) - 1) END AS channel_id
INTO q21 FROM cut WHERE starts > 0 OR low IN ('apple', 'google', 'facebook', 'baidu')

-- q22: directories of the address
WITH a AS (SELECT auction, bidder, price, channel, SUBSTRING(url, CHARINDEX('/', url, 9) + 1, LEN(url)) + '/' AS rest FROM {bid}),
b AS (SELECT auction, bidder, price, channel, LEFT(rest, CHARINDEX('/', rest) - 1) AS dir1,
    SUBSTRING(rest, CHARINDEX('/', rest) + 1, LEN(rest)) AS rest FROM a),
c AS (SELECT auction, bidder, price, channel, dir1, LEFT(rest, CHARINDEX('/', rest) - 1) AS dir2,
    SUBSTRING(rest, CHARINDEX('/', rest) + 1, LEN(rest)) AS rest FROM b)
SELECT auction, bidder, price, channel, dir1, dir2, LEFT(rest, CHARINDEX('/', rest) - 1) AS dir3 INTO q22 FROM c

-- q23: bids with their bidders and what these sell, within a day of each other
SELECT b.bidder AS bidder, b.price AS price, b.channel AS channel, b.url AS url, b.extra AS bid_extra,
    p.id AS person_id, p.name AS name, p.emailAddress AS emailAddress, p.creditCard AS creditCard, p.city AS city, p.state AS state,
    p.extra AS person_extra, a.itemName AS itemName, a.description AS description, a.initialBid AS initialBid, a.reserve AS reserve,
    a.dateTime AS auction_dateTime, a.expires AS expires, a.seller AS seller, a.category AS category, a.extra AS auction_extra
INTO q23
FROM {bid} b
JOIN {person} p ON p.id = b.bidder AND DATEDIFF(day, b, p) BETWEEN -1 AND 1
JOIN {auction} a ON a.seller = b.bidder AND DATEDIFF(day, b, a) BETWEEN -1 AND 1
