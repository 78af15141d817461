/*
 * Fuzzes the part of tidegate/platform/kafka/native.c that takes records apart and puts columns together, without Kafka: a librdkafka of a
 * few lines hands out random messages, and keeps what is written. kafka_pieces SEED SECONDS; it prints how many pieces it read.
 *
 * Law: every record comes out once, in order, with the bytes, nulls and headers it had; pieces keep to their limits; what is
 * written has the bytes of its columns. The sanitizers see each read and write beside a message or a column.
 */

#include "../../tidegate/platform/kafka/native.c"

#include <stdarg.h>
#include <time.h>

static uint64_t state;

static uint64_t random_bits(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static int64_t below(int64_t bound) { return (int64_t)(random_bits() % (uint64_t)bound); }

#define CHECK(holds)                                                                                                      \
    do {                                                                                                                  \
        if (!(holds)) {                                                                                                   \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds);                                     \
            abort();                                                                                                      \
        }                                                                                                                 \
    } while (0)

/* --- messages -------------------------------------------------------------------------------------------------------- */

#define LOG 400
#define FIRST_OFFSET 100
#define OWN 3
static const char *OWN_NAMES[OWN] = {"x", "trace", "x"}, *ASKED[] = {"trace", "x", "missing"};

typedef struct {
    rd_kafka_message_t of; /* first: a pointer to it is one to the message */
    void *header[2];
    size_t header_bytes[2];
    void *own[OWN]; /* headers of its producer, by the names in OWN_NAMES; NULL: one without a value */
    size_t own_bytes[OWN];
    int owned;
    int64_t stamp_ms;
} message;

static message *log_of[LOG];
static int64_t log_rows, handed_out, alive;

/* Bytes in a block of their own, exactly as long: a read beyond them is seen. NULL now and then. */
static void *some_bytes(size_t *length, int64_t longest) {
    *length = below(4) ? (size_t)below(longest + 1) : 0;
    if (!below(5)) {
        *length = 0;
        return NULL;
    }
    uint8_t *bytes = malloc(*length ? *length : 1);
    for (size_t at = 0; at < *length; at++)
        bytes[at] = (uint8_t)random_bits();
    return bytes;
}

static void make_log(void) {
    int64_t offset = FIRST_OFFSET, longest = below(3) ? 40 : 3000;
    log_rows = below(LOG) + 1;
    handed_out = 0;
    for (int64_t row = 0; row < log_rows; row++) {
        message *made = calloc(1, sizeof *made);
        offset += below(6) ? 1 : 1 + below(50);
        made->of.offset = offset;
        made->of.err = below(40) ? 0 : -191;
        made->of.payload = some_bytes(&made->of.len, longest);
        made->of.key = some_bytes(&made->of.key_len, 30);
        for (int which = 0; which < 2; which++)
            made->header[which] = some_bytes(&made->header_bytes[which], 60);
        made->owned = (int)below(OWN + 1);
        for (int which = 0; which < made->owned; which++)
            made->own[which] = some_bytes(&made->own_bytes[which], 90);
        made->stamp_ms = below(1000);
        log_of[row] = made;
    }
}

static void destroy(rd_kafka_message_t *given) {
    message *made = (message *)given;
    free(made->of.payload), free(made->of.key), free(made->header[0]), free(made->header[1]);
    for (int which = 0; which < OWN; which++)
        free(made->own[which]);
    free(made);
    alive--;
}

/* Hand out a copy: the log itself is what the columns are compared with. */
static rd_kafka_message_t *hand_out(void) {
    if (handed_out == log_rows)
        return NULL;
    message *made = log_of[handed_out++], *copy = malloc(sizeof *copy);
    *copy = *made;
    void **parts[] = {&copy->of.payload, &copy->of.key, &copy->header[0], &copy->header[1]};
    const size_t sizes[] = {made->of.len, made->of.key_len, made->header_bytes[0], made->header_bytes[1]};
    for (int part = 0; part < 4; part++)
        if (*parts[part])
            *parts[part] = memcpy(malloc(sizes[part] ? sizes[part] : 1), *parts[part], sizes[part]);
    for (int which = 0; which < OWN; which++)
        if (copy->own[which])
            copy->own[which] = memcpy(malloc(made->own_bytes[which] + 1), made->own[which], made->own_bytes[which]);
    alive++;
    return &copy->of;
}

static ssize_t consume_batch(rd_kafka_queue_t *queue, int wait, rd_kafka_message_t **to, size_t wanted) {
    (void)queue, (void)wait;
    ssize_t got = 0, most = below(4) ? (ssize_t)below((int64_t)wanted + 1) : 0;
    while (got < most && (to[got] = hand_out()))
        got++;
    return got;
}

static rd_kafka_message_t *consume(rd_kafka_queue_t *queue, int wait) {
    (void)queue, (void)wait;
    return below(10) ? hand_out() : NULL;
}

static int64_t timestamp(const rd_kafka_message_t *given, int *kind) {
    *kind = 1;
    return ((const message *)given)->stamp_ms;
}

static int headers_of(const rd_kafka_message_t *given, rd_kafka_headers_t **found) {
    const message *made = (const message *)given;
    *found = (rd_kafka_headers_t *)made;
    return made->header[0] || made->header[1] || made->owned ? 0 : -156;
}

static int header_get_all(const rd_kafka_headers_t *of, size_t index, const char **name, const void **value, size_t *size) {
    const message *made = (const message *)of;
    for (int which = 0; which < 2 + made->owned; which++) {
        if (which < 2 && !made->header[which])
            continue;
        if (index--)
            continue;
        *name = which < 2 ? which ? "tf" : "tg" : OWN_NAMES[which - 2];
        *value = which < 2 ? made->header[which] : made->own[which - 2];
        *size = which < 2 ? made->header_bytes[which] : made->own_bytes[which - 2];
        return 0;
    }
    return -156;
}

static int header_get_last(const rd_kafka_headers_t *of, const char *name, const void **value, size_t *size) {
    const char *other;
    int found = -156;
    for (size_t index = 0; header_get_all(of, index, &other, value, size) == 0; index++)
        if (!strcmp(name, other))
            found = (int)index;
    return found < 0 ? found : header_get_all(of, (size_t)found, &other, value, size);
}

static int header_get(const rd_kafka_headers_t *of, size_t index, const char *name, const void **value, size_t *size) {
    const message *made = (const message *)of;
    int which = strcmp(name, "tg") != 0;
    (void)index;
    *value = made->header[which];
    *size = made->header_bytes[which];
    return *value ? 0 : -156;
}

static const char *error_text(const rd_kafka_message_t *given) { return given->offset % 2 ? "it went wrong" : NULL; }
static const char *words_of(int error) { return error ? "an error" : ""; }
static rd_kafka_event_t *no_event(rd_kafka_queue_t *queue, int wait) { return (void)queue, (void)wait, NULL; }

/* --- reading --------------------------------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *at, const void *bytes, size_t length) {
    return (length ? memcpy(at, bytes, length) : at), at + length;
}

static uint8_t *put_entry(uint8_t *at, const message *made, int which) {
    int32_t sizes[] = {(int32_t)strlen(OWN_NAMES[which]), made->own[which] ? (int32_t)made->own_bytes[which] : -1};
    at = put(put(at, sizes, sizeof sizes), OWN_NAMES[which], (size_t)sizes[0]);
    return put(at, made->own[which], made->own[which] ? made->own_bytes[which] : 0);
}

/* What a value becomes with a frame before it; its length goes into *length*. */
static uint8_t *framed_value(const message *made, int framed, size_t *length) {
    uint8_t *value = malloc(made->of.len + 1000), *at = value + FRAME_HEAD;
    if (framed < 0)
        for (int which = 0; which < made->owned; which++)
            at = put_entry(at, made, which);
    else { /* in the order that was asked for: the name that is there once, then the last of the other */
        if (made->owned > 1 && made->own[1])
            at = put_entry(at, made, 1);
        int last = made->owned > 2 ? 2 : 0;
        if (made->owned > 0 && made->own[last])
            at = put_entry(at, made, last);
    }
    int32_t entries = (int32_t)(at - value) - FRAME_HEAD;
    put(value, &entries, sizeof entries);
    *length = (size_t)(put(at, made->of.payload, made->of.len) - value);
    return value;
}

static void compare(const tg_piece *piece, int64_t row, const message *made, int framed) {
    size_t value_bytes = made->of.len;
    uint8_t *value = framed && made->of.payload ? framed_value(made, framed, &value_bytes) : NULL;
    const void *parts[] = {value ? value : made->of.payload, made->of.key, made->header[0], made->header[1]};
    const size_t sizes[] = {value_bytes, made->of.key_len, made->header_bytes[0], made->header_bytes[1]};
    CHECK(piece->offset[row] == made->of.offset && piece->timestamp_ms[row] == made->stamp_ms);
    for (int which = 0; which < COLUMNS; which++) {
        int there = piece->column[which].valid[row >> 3] >> (row & 7) & 1;
        int32_t start = piece->column[which].ends[row], end = piece->column[which].ends[row + 1];
        CHECK(there == (parts[which] != NULL) && end - start == (int32_t)(there ? sizes[which] : 0));
        CHECK(end <= piece->column[which].size);
        CHECK(!there || !memcmp(piece->column[which].bytes + start, parts[which], sizes[which]));
    }
    free(value);
}

/* Read the whole log in pieces of any size; return how many there were. */
static int64_t read_log(void) {
    make_log();
    int64_t room = below(50) + 1, pieces = 0, next = 0, idle = 0;
    int framed = (int)below(3) - 1;
    tg_consumer consumer = {.room = room, .names = {"tg", "tf"}, .framed = ASKED, .framed_count = framed > 0 ? 3 : framed};
    consumer.fetched = malloc(room * sizeof *consumer.fetched);
    tg_source source = {0};
    consumer.source = &source;
    for (int which = 0; which < 2; which++) {
        consumer.found[which] = malloc(room * sizeof **consumer.found);
        consumer.found_bytes[which] = malloc(room * sizeof **consumer.found_bytes);
    }
    int64_t end = FIRST_OFFSET;
    while (next < log_rows && idle < 1000) {
        tg_piece piece;
        if (end <= log_of[next]->of.offset)
            end = log_of[next]->of.offset + 1 + below(60);
        int64_t rows = below(60) + 1, octets = below(4000) + 1, total = 0;
        CHECK(tg_take(&consumer, end, rows, octets, 0, 0, &piece) == 0);
        CHECK(piece.rows <= rows && piece.rows <= room && !(piece.rows && piece.error));
        for (int64_t row = 0; row < piece.rows; row++, next++) {
            CHECK(log_of[next]->of.err == 0 && piece.offset[row] < end);
            compare(&piece, row, log_of[next], framed);
        }
        for (int which = 0; which < COLUMNS; which++)
            total += piece.rows ? piece.column[which].size : 0;
        CHECK(piece.rows < 2 || total <= octets);
        if (piece.error) {
            CHECK(log_of[next]->of.err == piece.error && log_of[next]->of.offset == piece.error_offset);
            next++;
        }
        CHECK(!piece.beyond || next == log_rows || log_of[next]->of.offset >= end);
        idle = piece.rows || piece.error || piece.beyond ? 0 : idle + 1;
        if (piece.beyond)
            end = log_of[next]->of.offset;
        if (piece.rows)
            tg_free(piece.block);
        pieces++;
    }
    CHECK(next == log_rows);
    for (int64_t at = 0; at < consumer.count; at++)
        destroy(consumer.fetched[at]);
    CHECK(alive == 0);
    for (int which = 0; which < 2; which++)
        free(consumer.found[which]), free(consumer.found_bytes[which]);
    free(consumer.fetched);
    for (int64_t row = 0; row < log_rows; row++) {
        alive++;
        destroy(&log_of[row]->of);
    }
    return pieces;
}

/* --- writing --------------------------------------------------------------------------------------------------------- */

static uint8_t *sent;
static int64_t sent_bytes;

static void keep(const void *bytes, size_t length) {
    sent = realloc(sent, sent_bytes + length + 1);
    if (length)
        memcpy(sent + sent_bytes, bytes, length);
    sent_bytes += (int64_t)length;
}

/* Headers of one record, as the bytes that they leave in what is sent. */
typedef struct {
    uint8_t bytes[8192];
    size_t size;
} header_list;

static rd_kafka_headers_t *headers_new(size_t count) { return (void)count, calloc(1, sizeof(header_list)); }
static void headers_destroy(rd_kafka_headers_t *list) { free(list); }

static int header_add(rd_kafka_headers_t *of, const char *name, ssize_t name_bytes, const void *value, ssize_t size) {
    header_list *list = (header_list *)of;
    uint8_t *at = list->bytes + list->size;
    at = put(at, name, name_bytes < 0 ? 0 : (size_t)name_bytes); /* the name of Tidegate's own is not kept, as in produce */
    list->size = (size_t)(put(at, value, value ? (size_t)size : 0) - list->bytes);
    CHECK(list->size < sizeof list->bytes);
    return 0;
}

static int produce(rd_kafka_t *client, ...) {
    va_list arguments;
    (void)client;
    if (!below(10))
        return ERR_QUEUE_FULL;
    va_start(arguments, client);
    for (int kind; (kind = va_arg(arguments, int)) != V_END;) {
        if (kind == V_VALUE || kind == V_KEY) {
            const void *bytes = va_arg(arguments, const void *);
            size_t length = va_arg(arguments, size_t);
            CHECK(bytes || !length);
            keep(bytes ? "+" : "-", 1);
            keep(bytes, length);
        } else if (kind == V_HEADER) {
            va_arg(arguments, const char *);
            const void *bytes = va_arg(arguments, const void *);
            keep(bytes, (size_t)va_arg(arguments, ssize_t));
        } else if (kind == V_HEADERS) {
            header_list *list = va_arg(arguments, header_list *);
            keep(list->bytes, list->size);
            free(list);
        } else if (kind == V_TIMESTAMP) {
            va_arg(arguments, int64_t);
        } else if (kind == V_RKT) {
            va_arg(arguments, void *);
        } else {
            va_arg(arguments, int);
        }
    }
    va_end(arguments);
    return 0;
}

static rd_kafka_topic_t *new_topic(rd_kafka_t *client, const char *name, rd_kafka_topic_conf_t *conf) {
    (void)client, (void)conf;
    return (rd_kafka_topic_t *)strdup(name);
}

static void free_topic(rd_kafka_topic_t *topic) { free(topic); }

/* A column of random bytes that begins anywhere in its buffers, and what it must become when it is written. */
static void make_column(tg_column *column, int64_t rows) {
    int64_t first = below(20), count = first + rows, end = 0;
    int32_t *narrow = malloc((count + 1) * sizeof *narrow);
    int64_t *wide = malloc((count + 1) * sizeof *wide);
    uint8_t *valid = calloc((count + 7) / 8, 1);
    for (int64_t row = 0; row <= count; row++) {
        narrow[row] = (int32_t)(wide[row] = end);
        end += row < count ? below(30) : 0;
        if (row < count && below(4))
            valid[row >> 3] |= 1u << (row & 7);
    }
    uint8_t *bytes = malloc(end ? end : 1);
    for (int64_t at = 0; at < end; at++)
        bytes[at] = (uint8_t)random_bits();
    column->first = first;
    column->bytes = bytes;
    column->wide = (int32_t)below(2);
    column->ends = column->wide ? (void *)wide : (void *)narrow;
    free(column->wide ? (void *)narrow : (void *)wide);
    column->valid = below(3) ? valid : NULL;
    if (!column->valid)
        free(valid);
}

static void free_column(tg_column *column) { free((void *)column->bytes), free((void *)column->valid), free((void *)column->ends); }

static void expect(const tg_column *column, int64_t row, int64_t *at) {
    int64_t place = column->first + row;
    int there = !column->valid || (column->valid[place >> 3] >> (place & 7) & 1);
    int64_t start = column->wide ? ((const int64_t *)column->ends)[place] : ((const int32_t *)column->ends)[place];
    int64_t end = column->wide ? ((const int64_t *)column->ends)[place + 1] : ((const int32_t *)column->ends)[place + 1];
    CHECK(*at < sent_bytes && sent[*at] == (there ? '+' : '-'));
    ++*at;
    if (there) {
        CHECK(*at + end - start <= sent_bytes && !memcmp(sent + *at, column->bytes + start, end - start));
        *at += end - start;
    }
}

/* Put frames of two headers, or of none, before the values of a column. */
static void frame_column(tg_column *column, int64_t rows) {
    tg_column plain = *column;
    int64_t count = plain.first + rows, *ends = malloc((count + 1) * sizeof *ends);
    uint8_t *bytes = malloc(count * 100 + 1), *at = bytes;
    ends[0] = 0;
    for (int64_t row = 0; row < count; row++) {
        size_t length;
        tg_column from_start = {plain.bytes, plain.valid, plain.ends, 0, plain.wide};
        const void *value = entry(&from_start, row, &length);
        static const uint8_t two[] = {22, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 'x', 'a', 'b', 'c', 'd', 1, 0, 0, 0, 255, 255, 255, 255, 'y'};
        static const uint8_t none[] = {0, 0, 0, 0};
        if (value) {
            at = row % 2 ? put(at, two, sizeof two) : put(at, none, sizeof none);
            at = put(at, value, length);
        }
        ends[row + 1] = at - bytes;
    }
    free((void *)plain.bytes), free((void *)plain.ends);
    column->bytes = bytes, column->ends = ends, column->wide = 1;
}

/* What must have been sent of a framed value: its payload, and then its key, Tidegate's header and its own. */
static void expect_framed(const tg_column *value, const tg_column *key, int64_t row, const uint8_t *header, int64_t size, int64_t *at) {
    size_t length;
    const uint8_t *framed = entry(value, row, &length);
    size_t frame = framed ? FRAME_HEAD + framed[0] : 0;
    CHECK(*at < sent_bytes && sent[*at] == (framed ? '+' : '-'));
    ++*at;
    CHECK(*at + (int64_t)(length - frame) <= sent_bytes && (!framed || !memcmp(sent + *at, framed + frame, length - frame)));
    *at += (int64_t)(length - frame);
    expect(key, row, at);
    CHECK(!memcmp(sent + *at, header, (size_t)size));
    *at += size;
    if (frame > FRAME_HEAD) {
        CHECK(*at + 6 <= sent_bytes && !memcmp(sent + *at, "xabcdy", 6));
        *at += 6;
    }
}

/* Random bytes are no frames: they are refused, and nothing beside them is read. */
static void write_damaged(void) {
    int64_t rows = below(20) + 1, next = 0;
    tg_column value, key;
    make_column(&value, rows), make_column(&key, rows);
    int32_t *partition = calloc(rows, sizeof *partition);
    int64_t *stamp_ms = calloc(rows, sizeof *stamp_ms);
    tg_producer producer = {0};
    while (next < rows && !producer.error)
        next = tg_send(&producer, "topic", &value, &key, partition, stamp_ms, "tg", (const uint8_t *)stamp_ms, 1, 1, next, rows);
    CHECK(!producer.error || producer.error == ERR_BAD_MSG);
    free_topic(producer.topic[0]), free(producer.name[0]);
    free(stamp_ms), free(partition);
    free_column(&value), free_column(&key);
}

static void write_columns(void) {
    int64_t rows = below(100) + 1, next = 0, at = 0, header_bytes = below(50) + 1;
    tg_column value, key;
    make_column(&value, rows), make_column(&key, rows);
    int framed = !below(3);
    if (framed)
        frame_column(&value, rows);
    int32_t *partition = calloc(rows, sizeof *partition);
    int64_t *stamp_ms = calloc(rows, sizeof *stamp_ms);
    uint8_t *headers = framed || below(3) ? malloc(rows * header_bytes) : NULL;
    for (int64_t place = 0; headers && place < rows * header_bytes; place++)
        headers[place] = (uint8_t)random_bits();
    tg_producer producer = {0};
    char name[16];
    sent_bytes = 0;
    while (next < rows) {
        snprintf(name, sizeof name, "topic %d", (int)below(TOPICS + 4));
        next = tg_send(&producer, name, &value, &key, partition, stamp_ms, "tg", headers, header_bytes, framed, next, rows);
        CHECK(!producer.error);
    }
    for (int64_t row = 0; framed && row < rows; row++)
        expect_framed(&value, &key, row, headers + row * header_bytes, header_bytes, &at);
    for (int64_t row = 0; !framed && row < rows; row++) {
        expect(&value, row, &at), expect(&key, row, &at);
        CHECK(!headers || !memcmp(sent + at, headers + row * header_bytes, header_bytes));
        at += headers ? header_bytes : 0;
    }
    CHECK(at == sent_bytes);
    for (int topic = 0; topic < TOPICS && producer.topic[topic]; topic++)
        free_topic(producer.topic[topic]), free(producer.name[topic]);
    free(headers), free(stamp_ms), free(partition);
    free_column(&value), free_column(&key);
}

int main(int count, char **arguments) {
    int64_t pieces = 0;
    time_t until = time(NULL) + (count > 2 ? atoi(arguments[2]) : 1);
    state = (count > 1 ? strtoull(arguments[1], NULL, 10) : 1) * 0x9E3779B97F4A7C15u + 1;
    rd_kafka_consume_batch_queue = consume_batch;
    rd_kafka_consume_queue = consume;
    rd_kafka_message_destroy = destroy;
    rd_kafka_message_timestamp = timestamp;
    rd_kafka_message_errstr = error_text;
    rd_kafka_message_headers = headers_of;
    rd_kafka_header_get = header_get;
    rd_kafka_header_get_all = header_get_all;
    rd_kafka_header_get_last = header_get_last;
    rd_kafka_headers_new = headers_new;
    rd_kafka_headers_destroy = headers_destroy;
    rd_kafka_header_add = header_add;
    rd_kafka_err2str = words_of;
    rd_kafka_queue_poll = no_event;
    rd_kafka_producev = produce;
    rd_kafka_topic_new = new_topic;
    rd_kafka_topic_destroy = free_topic;
    do {
        pieces += read_log();
        write_columns();
        write_damaged();
    } while (time(NULL) <= until);
    free(sent);
    printf("%lld pieces\n", (long long)pieces);
    return 0;
}
