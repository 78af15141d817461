-- Nexmark's queries as DuckDB computes them over all events at once: the judge of every row. bid, auction and person have the column
-- tie beside the benchmark's: the place of the event in its log. bid has arrived, when it came.

-- q0: pass on
SELECT auction, bidder, price, dateTime, extra FROM bid

-- q1: currency
SELECT auction, bidder, 0.908::DOUBLE * price AS price, dateTime, extra FROM bid

-- q2: selection
SELECT auction, price FROM bid WHERE auction % 123 = 0

-- q3: local items
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id AND is_near(a.dateTime, p.dateTime)
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')

-- q4: mean final price by category
SELECT category, avg(final) AS final FROM (
    SELECT a.id, a.category, b.dateTime::DATE AS day, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY ALL)
GROUP BY category, day

-- q5: hot items
WITH counts AS (
    SELECT auction, ends, count(*) AS num
    FROM bid, generate_series(1, 5) hop(n), LATERAL (SELECT time_bucket(INTERVAL '2 s', dateTime) + n * INTERVAL '2 s' AS ends)
    GROUP BY ALL)
SELECT auction, num FROM counts QUALIFY num = max(num) OVER (PARTITION BY ends)

-- q6: mean price of the last auctions of a seller
WITH won AS (
    SELECT a.id, a.seller, b.price, b.dateTime FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id, b.dateTime::DATE ORDER BY b.price DESC, b.dateTime, b.tie) = 1),
latest AS (SELECT * FROM won QUALIFY row_number() OVER (PARTITION BY seller, dateTime::DATE ORDER BY dateTime DESC, id) <= 11)
SELECT seller, avg(price) AS avg_price FROM latest GROUP BY seller, dateTime::DATE

-- q7: highest bids of ten seconds
WITH highest AS (SELECT time_bucket(INTERVAL '10 s', dateTime) + INTERVAL '10 s' AS ends, max(price) AS maxprice FROM bid GROUP BY 1)
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra FROM bid b JOIN highest h
    ON b.price = h.maxprice AND b.dateTime BETWEEN h.ends - INTERVAL '10 s' AND h.ends

-- q8: new users who sell
SELECT p.id, p.name, stime FROM (SELECT DISTINCT id, name, time_bucket(INTERVAL '10 s', dateTime) AS stime FROM person) p
JOIN (SELECT DISTINCT seller, time_bucket(INTERVAL '10 s', dateTime) AS stime FROM auction) a USING (stime) WHERE p.id = a.seller

-- q9: winning bids
SELECT a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime, a.expires, a.seller, a.category, a.extra,
    b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id, b.dateTime::DATE ORDER BY b.price DESC, b.dateTime, b.tie) = 1

-- q10: log by day and minute
SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm FROM bid

-- q11: sessions of bidders
WITH marked AS (
    SELECT bidder, dateTime, dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) <= INTERVAL '10 s' AS goes_on FROM bid),
numbered AS (
    SELECT bidder, dateTime, count(*) FILTER (WHERE goes_on IS NOT TRUE) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM marked)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL '10 s' AS endtime
FROM numbered GROUP BY bidder, session

-- q12: bids by the time at which they arrive
SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL '10 s', arrived) AS starttime,
    time_bucket(INTERVAL '10 s', arrived) + INTERVAL '10 s' AS endtime
FROM bid GROUP BY ALL

-- q13: side input
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value FROM bid b JOIN side_input s ON b.auction % 10000 = s.key

-- q14: calculation
SELECT auction, bidder, 0.908::DOUBLE * price AS price,
    CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime' END AS bidTimeType,
    dateTime, extra, len(regexp_replace(extra, '[^c]', '', 'g')) AS c_counts
FROM bid WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000

-- q15: bids of a day
SELECT strftime(dateTime, '%Y-%m-%d') AS day, {ranks} FROM bid GROUP BY day

-- q16: bids of a day by channel
SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, max(strftime(dateTime, '%H:%M')) AS minute, {ranks} FROM bid GROUP BY channel, day

-- q17: bids of a day by auction
SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids, count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price)::BIGINT AS sum_price
FROM bid GROUP BY auction, day

-- q18: the last bid of a bidder on an auction
SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction, dateTime::DATE ORDER BY dateTime DESC, tie) = 1

-- q19: the ten highest bids on an auction
SELECT auction, bidder, price, channel, url, dateTime, extra,
    row_number() OVER (PARTITION BY auction, dateTime::DATE ORDER BY price DESC, dateTime, tie) AS rank_number
FROM bid QUALIFY rank_number <= 10

-- q20: bids with their auctions
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
    a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id AND is_near(b.dateTime, a.dateTime) WHERE a.category = 10

-- q21: channel ids
WITH named AS (
    SELECT *, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE regexp_extract_all(url, '(?:&|^)channel_id=([^&]*)', 1)[1] END AS channel_id
    FROM bid)
SELECT auction, bidder, price, channel, channel_id FROM named WHERE channel_id IS NOT NULL

-- q22: directories of the address
SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] AS dir2, string_split(url, '/')[6] AS dir3
FROM bid

-- q23: bids with their bidders and what these sell
SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id AS person_id, p.name, p.emailAddress, p.creditCard, p.city, p.state,
    p.extra AS person_extra, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller,
    a.category, a.extra AS auction_extra
FROM bid b JOIN person p ON p.id = b.bidder AND is_near(b.dateTime, p.dateTime)
    JOIN auction a ON a.seller = b.bidder AND is_near(b.dateTime, a.dateTime)
