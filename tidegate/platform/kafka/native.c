/*
 * Kafka by whole columns: one call reads many records into Arrow columns, one call writes many events out of them.
 *
 * Law: this file decides nothing. What is read, what is written and what an error means is told by ranges.py and writer.py,
 * which do the same through confluent-kafka's message objects where this file was not compiled.
 *
 * It knows nothing of Python and is called through ctypes, which lets other threads run meanwhile. librdkafka is the shared
 * library that the confluent-kafka wheel brings; it is opened when the first client is made, so nothing is linked and its
 * headers are not needed: the declarations below are the part of its stable binary interface that is used here.
 *
 * One client is used by one thread at a time.
 */

#include <dlfcn.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#define TEXT_BYTES 512
#define ALIGNMENT 64

/* --- librdkafka ------------------------------------------------------------------------------------------------------ */

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_op_s rd_kafka_event_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1 };                                     /* rd_kafka_type_t */
enum { CONF_OK = 0 };                                                    /* rd_kafka_conf_res_t */
enum { EVENT_DR = 0x1, EVENT_ERROR = 0x8 };                              /* rd_kafka_event_type_t */
enum { ERR_BAD_MSG = -199, ERR_EOF = -191, ERR_QUEUE_FULL = -184, ERR_FATAL = -150 };    /* rd_kafka_resp_err_t */
enum { PURGE_QUEUE = 0x1, PURGE_INFLIGHT = 0x2 };
enum { MSG_COPY = 0x2 };
enum { DESTROY_WITHOUT_CLOSE = 0x8 };
enum { V_END = 0, V_RKT = 2, V_PARTITION = 3, V_VALUE = 4, V_KEY = 5, V_MSGFLAGS = 7, V_TIMESTAMP = 8, V_HEADER = 9, V_HEADERS = 10 };

#define FUNCTIONS(F)                                                                                                      \
    F(rd_kafka_conf_t *, rd_kafka_conf_new, (void))                                                                       \
    F(void, rd_kafka_conf_destroy, (rd_kafka_conf_t *))                                                                   \
    F(int, rd_kafka_conf_set, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                            \
    F(void, rd_kafka_conf_set_events, (rd_kafka_conf_t *, int))                                                           \
    F(rd_kafka_t *, rd_kafka_new, (int, rd_kafka_conf_t *, char *, size_t))                                               \
    F(void, rd_kafka_destroy_flags, (rd_kafka_t *, int))                                                                  \
    F(rd_kafka_queue_t *, rd_kafka_queue_new, (rd_kafka_t *))                                                             \
    F(rd_kafka_queue_t *, rd_kafka_queue_get_main, (rd_kafka_t *))                                                        \
    F(void, rd_kafka_queue_destroy, (rd_kafka_queue_t *))                                                                 \
    F(void, rd_kafka_queue_io_event_enable, (rd_kafka_queue_t *, int, const void *, size_t))                              \
    F(int, rd_kafka_consume_start_queue, (rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *))                      \
    F(int, rd_kafka_consume_stop, (rd_kafka_topic_t *, int32_t))                                                          \
    F(ssize_t, rd_kafka_consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                    \
    F(rd_kafka_message_t *, rd_kafka_consume_queue, (rd_kafka_queue_t *, int))                                            \
    F(void, rd_kafka_message_destroy, (rd_kafka_message_t *))                                                             \
    F(int64_t, rd_kafka_message_timestamp, (const rd_kafka_message_t *, int *))                                           \
    F(const char *, rd_kafka_message_errstr, (const rd_kafka_message_t *))                                                \
    F(int, rd_kafka_message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                 \
    F(int, rd_kafka_header_get, (const rd_kafka_headers_t *, size_t, const char *, const void **, size_t *))              \
    F(int, rd_kafka_header_get_last, (const rd_kafka_headers_t *, const char *, const void **, size_t *))                 \
    F(int, rd_kafka_header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))         \
    F(rd_kafka_headers_t *, rd_kafka_headers_new, (size_t))                                                               \
    F(void, rd_kafka_headers_destroy, (rd_kafka_headers_t *))                                                             \
    F(int, rd_kafka_header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))                     \
    F(rd_kafka_topic_t *, rd_kafka_topic_new, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                      \
    F(void, rd_kafka_topic_destroy, (rd_kafka_topic_t *))                                                                 \
    F(int, rd_kafka_producev, (rd_kafka_t *, ...))                                                                        \
    F(int, rd_kafka_flush, (rd_kafka_t *, int))                                                                           \
    F(int, rd_kafka_purge, (rd_kafka_t *, int))                                                                           \
    F(int, rd_kafka_outq_len, (rd_kafka_t *))                                                                             \
    F(int, rd_kafka_fatal_error, (rd_kafka_t *, char *, size_t))                                                          \
    F(const char *, rd_kafka_err2str, (int))                                                                              \
    F(int, rd_kafka_last_error, (void))                                                                                   \
    F(rd_kafka_event_t *, rd_kafka_queue_poll, (rd_kafka_queue_t *, int))                                                 \
    F(int, rd_kafka_event_type, (const rd_kafka_event_t *))                                                               \
    F(int, rd_kafka_event_error, (rd_kafka_event_t *))                                                                    \
    F(const char *, rd_kafka_event_error_string, (rd_kafka_event_t *))                                                    \
    F(const rd_kafka_message_t *, rd_kafka_event_message_next, (rd_kafka_event_t *))                                      \
    F(void, rd_kafka_event_destroy, (rd_kafka_event_t *))

#define DECLARE(result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARE)
#undef DECLARE

/* Open librdkafka at *path*; return 0, or -1 with the reason in *text*. Opening it again costs nothing. */
int tg_open(const char *path, char *text) {
    static int is_open = 0;
    if (is_open)
        return 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(text, TEXT_BYTES, "%s", why ? why : "it cannot be opened");
        return -1;
    }
#define FIND(result, name, arguments)                                                                                     \
    *(void **)&name = dlsym(library, #name);                                                                              \
    if (!name) {                                                                                                          \
        snprintf(text, TEXT_BYTES, "it has no function %s", #name);                                                       \
        return -1;                                                                                                        \
    }
    FUNCTIONS(FIND)
#undef FIND
    is_open = 1;
    return 0;
}

/* A client with *count* properties. An error never repeats a value, which may be a secret. */
static rd_kafka_t *client_new(int kind, int events, const char **names, const char **values, int count, char *text) {
    char ignored[TEXT_BYTES];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (int at = 0; at < count; at++)
        if (rd_kafka_conf_set(conf, names[at], values[at], ignored, sizeof ignored) != CONF_OK) {
            snprintf(text, TEXT_BYTES, "librdkafka does not take the property %s, or not its value", names[at]);
            rd_kafka_conf_destroy(conf);
            return NULL;
        }
    if (events)
        rd_kafka_conf_set_events(conf, events);
    rd_kafka_t *client = rd_kafka_new(kind, conf, text, TEXT_BYTES);
    if (!client)
        rd_kafka_conf_destroy(conf);
    return client;
}

/* --- frames ---------------------------------------------------------------------------------------------------------- */

/* ordering/columns/framed_payloads.py describes them; all that runs this is little-endian. */
enum { FRAME_HEAD = 4, ENTRY_HEAD = 8 };
#define OWN_HEADER "tg"
#define OWN_FACTS "tf"

/* --- reading --------------------------------------------------------------------------------------------------------- */

enum { VALUE, KEY, HEADER, FACTS, COLUMNS };

/* Connections to the brokers, for the partitions of any number of consumers. */
typedef struct {
    rd_kafka_t *client;
    rd_kafka_queue_t *client_events; /* what concerns no partition alone */
    int arrived;                     /* an eventfd, readable once something has come for one of the partitions; -1: none */
} tg_source;

typedef struct {
    tg_source *source;
    rd_kafka_topic_t *topic;
    int32_t partition;
    rd_kafka_queue_t *queue;  /* of this partition; NULL before the first tg_assign */
    rd_kafka_message_t **fetched; /* fetched and not yet given out, in log order; errors among them */
    int64_t count, room;
    const char *names[2]; /* headers to look for, NULL: none */
    const void **found[2];
    size_t *found_bytes[2];
    const char **framed; /* headers to put before values, as ordering/columns/framed_payloads.py describes */
    int framed_count;    /* -1: all but those that Tidegate writes itself */
} tg_consumer;

typedef struct {
    int64_t rows;
    void *block; /* what all the others point into; to be freed by tg_free */
    int64_t *offset, *timestamp_ms;
    struct {
        int32_t *ends; /* rows + 1 */
        uint8_t *valid, *bytes;
        int64_t nulls, size;
    } column[COLUMNS];
    int32_t beyond; /* a record at or beyond the end has come: what is missing before it are holes */
    int32_t error;  /* an error came next: its code, offset and words; 0: none */
    int64_t error_offset;
    int64_t ended_at; /* where the partition has ended; 0: that was not said */
    char text[TEXT_BYTES];
} tg_piece;

void tg_free(void *block) { free(block); }

void tg_source_close(tg_source *source) {
    rd_kafka_queue_destroy(source->client_events);
    rd_kafka_destroy_flags(source->client, DESTROY_WITHOUT_CLOSE);
    if (source->arrived >= 0)
        close(source->arrived);
    free(source);
}

tg_source *tg_source_new(const char **names, const char **values, int count, char *text) {
    tg_source *source = calloc(1, sizeof *source);
    if (!source)
        return NULL;
    source->client = client_new(CONSUMER, EVENT_ERROR, names, values, count, text);
    if (!source->client) {
        free(source);
        return NULL;
    }
    source->client_events = rd_kafka_queue_get_main(source->client);
    source->arrived = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return source;
}

/* Wait up to *wait_ms* until something has come for one of the partitions since all of them were found empty, or until *other* can be read;
   a negative one never can. */
void tg_source_wait(tg_source *source, int wait_ms, int other) {
    struct pollfd waited[] = {{.fd = source->arrived, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    uint64_t times;
    if (poll(waited, 2, wait_ms) > 0 && waited[0].revents)
        (void)!read(source->arrived, &times, sizeof times);
}

/* Fetch no more; forget what was fetched, and what may still come. */
static void stop(tg_consumer *consumer) {
    for (int64_t at = 0; at < consumer->count; at++)
        rd_kafka_message_destroy(consumer->fetched[at]);
    consumer->count = 0;
    if (consumer->queue) {
        rd_kafka_consume_stop(consumer->topic, consumer->partition);
        rd_kafka_queue_destroy(consumer->queue);
        consumer->queue = NULL;
    }
}

/* Close a consumer; its source stays. */
void tg_consumer_close(tg_consumer *consumer) {
    stop(consumer);
    if (consumer->topic)
        rd_kafka_topic_destroy(consumer->topic);
    for (int which = 0; which < 2; which++) {
        free(consumer->found[which]);
        free(consumer->found_bytes[which]);
    }
    free(consumer->fetched);
    free(consumer);
}

/* A reader of a partition that no other one of this source reads, which keeps at most *room* records between two calls; headers only
 * if names of some are given, and values with the frame of *framed_count* headers before them if that is not 0. */
tg_consumer *tg_consumer_new(tg_source *source, const char *topic, int32_t partition, int64_t room, const char *header,
                             const char *facts, const char **framed, int framed_count, char *text) {
    tg_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return NULL;
    snprintf(text, TEXT_BYTES, "out of memory");
    consumer->source = source;
    consumer->partition = partition;
    consumer->room = room;
    consumer->names[0] = header; /* Python keeps all names as long as the consumer lives */
    consumer->names[1] = facts;
    consumer->framed = framed;
    consumer->framed_count = framed_count;
    consumer->fetched = malloc(room * sizeof *consumer->fetched);
    int short_of_memory = !consumer->fetched;
    for (int which = 0; which < 2 && header; which++) {
        consumer->found[which] = malloc(room * sizeof **consumer->found);
        consumer->found_bytes[which] = malloc(room * sizeof **consumer->found_bytes);
        short_of_memory |= !consumer->found[which] || !consumer->found_bytes[which];
    }
    if (!short_of_memory && !(consumer->topic = rd_kafka_topic_new(source->client, topic, NULL)))
        snprintf(text, TEXT_BYTES, "%s", rd_kafka_err2str(rd_kafka_last_error()));
    if (!consumer->topic) {
        tg_consumer_close(consumer);
        return NULL;
    }
    return consumer;
}

/* Read on from *offset*; forget what was fetched. Return 0 or librdkafka's error. */
int tg_assign(tg_consumer *consumer, int64_t offset) {
    stop(consumer);
    consumer->queue = rd_kafka_queue_new(consumer->source->client);
    const uint64_t once = 1; /* what is written into an eventfd */
    if (consumer->source->arrived >= 0)
        rd_kafka_queue_io_event_enable(consumer->queue, consumer->source->arrived, &once, sizeof once);
    if (rd_kafka_consume_start_queue(consumer->topic, consumer->partition, offset, consumer->queue) == 0)
        return 0;
    int error = rd_kafka_last_error();
    rd_kafka_queue_destroy(consumer->queue);
    consumer->queue = NULL;
    return error;
}

/* Hear what concerns all partitions: an error, if there is one, goes into *piece*. */
static void take_client_events(tg_consumer *consumer, tg_piece *piece) {
    rd_kafka_event_t *event;
    while (!piece->error && (event = rd_kafka_queue_poll(consumer->source->client_events, 0))) {
        if (rd_kafka_event_type(event) == EVENT_ERROR) {
            const char *words = rd_kafka_event_error_string(event);
            piece->error = rd_kafka_event_error(event);
            piece->error_offset = -1;
            snprintf(piece->text, TEXT_BYTES, "%s", words ? words : rd_kafka_err2str(piece->error));
        }
        rd_kafka_event_destroy(event);
    }
}

/* Fetch up to *wanted* more; wait up to *wait_ms* for the first of them. */
static int64_t fetch(tg_consumer *consumer, int64_t wanted, int wait_ms) {
    rd_kafka_message_t **next = consumer->fetched + consumer->count;
    ssize_t got = rd_kafka_consume_batch_queue(consumer->queue, 0, next, wanted);
    if (got <= 0) {
        *next = rd_kafka_consume_queue(consumer->queue, wait_ms);
        got = *next ? 1 : 0;
    }
    consumer->count += got;
    return got;
}

static void find_headers(tg_consumer *consumer, int64_t row) {
    rd_kafka_headers_t *headers = NULL;
    int none = rd_kafka_message_headers(consumer->fetched[row], &headers) != 0;
    for (int which = 0; which < 2; which++) {
        const void **found = &consumer->found[which][row];
        if (none || rd_kafka_header_get(headers, 0, consumer->names[which], found, &consumer->found_bytes[which][row]) != 0)
            *found = NULL;
        if (!*found)
            consumer->found_bytes[which][row] = 0;
    }
}

/* Add a header to the entries *at* of a frame; write nothing if that is NULL. Return the bytes of the entry. */
static size_t add_entry(uint8_t *at, const char *name, const void *value, size_t value_bytes) {
    uint32_t name_bytes = (uint32_t)strlen(name);
    int32_t length = value ? (int32_t)value_bytes : -1;
    if (!value)
        value_bytes = 0;
    if (at) {
        memcpy(at, &name_bytes, sizeof name_bytes);
        memcpy(at + sizeof name_bytes, &length, sizeof length);
        memcpy(at + ENTRY_HEAD, name, name_bytes);
        if (value_bytes)
            memcpy(at + ENTRY_HEAD + name_bytes, value, value_bytes);
    }
    return ENTRY_HEAD + name_bytes + value_bytes;
}

/* Write the frame of a message's headers *at* a place; only measure it if that is NULL. Of several headers of one name that is asked
 * for the last one counts; one without a value is as if absent. Return the bytes of the frame. */
static size_t frame(const tg_consumer *consumer, rd_kafka_message_t *message, uint8_t *at) {
    rd_kafka_headers_t *headers = NULL;
    int none = rd_kafka_message_headers(message, &headers) != 0;
    size_t size = FRAME_HEAD, value_bytes;
    const void *value;
    const char *name;
    for (int which = 0; !none && which < consumer->framed_count; which++)
        if (rd_kafka_header_get_last(headers, consumer->framed[which], &value, &value_bytes) == 0 && value)
            size += add_entry(at ? at + size : NULL, consumer->framed[which], value, value_bytes);
    for (size_t place = 0; !none && consumer->framed_count < 0; place++) {
        if (rd_kafka_header_get_all(headers, place, &name, &value, &value_bytes) != 0)
            break;
        if (strcmp(name, OWN_HEADER) && strcmp(name, OWN_FACTS))
            size += add_entry(at ? at + size : NULL, name, value, value_bytes);
    }
    uint32_t entries = (uint32_t)(size - FRAME_HEAD);
    if (at)
        memcpy(at, &entries, sizeof entries);
    return size;
}

static size_t aligned(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void *carve(uint8_t **at, size_t size) {
    void *here = *at;
    *at += aligned(size);
    return here;
}

/* Copy the first *rows* messages, *size* bytes of each column, into columns of their own. */
static int fill(tg_consumer *consumer, int64_t rows, const int64_t *size, tg_piece *piece) {
    int columns = consumer->names[0] ? COLUMNS : HEADER;
    size_t ends_bytes = (rows + 1) * sizeof(int32_t), valid_bytes = (rows + 7) / 8, total = 2 * aligned(rows * sizeof(int64_t));
    for (int which = 0; which < columns; which++)
        total += aligned(ends_bytes) + aligned(valid_bytes) + aligned(size[which]);
    uint8_t *at = aligned_alloc(ALIGNMENT, total);
    if (!at)
        return -1;
    piece->block = at;
    piece->rows = rows;
    piece->offset = carve(&at, rows * sizeof(int64_t));
    piece->timestamp_ms = carve(&at, rows * sizeof(int64_t));
    for (int which = 0; which < columns; which++) {
        piece->column[which].ends = carve(&at, ends_bytes);
        piece->column[which].valid = memset(carve(&at, valid_bytes), 0xff, valid_bytes);
        piece->column[which].bytes = carve(&at, size[which]);
        piece->column[which].size = size[which];
        piece->column[which].ends[0] = 0;
    }
    for (int64_t row = 0; row < rows; row++) {
        rd_kafka_message_t *message = consumer->fetched[row];
        int kind;
        piece->offset[row] = message->offset;
        piece->timestamp_ms[row] = rd_kafka_message_timestamp(message, &kind);
        for (int which = 0; which < columns; which++) {
            const void *bytes;
            size_t length;
            if (which == VALUE)
                bytes = message->payload, length = message->len;
            else if (which == KEY)
                bytes = message->key, length = message->key_len;
            else
                bytes = consumer->found[which - HEADER][row], length = consumer->found_bytes[which - HEADER][row];
            int32_t end = piece->column[which].ends[row];
            if (bytes && which == VALUE && consumer->framed_count)
                end += (int32_t)frame(consumer, message, piece->column[which].bytes + end);
            if (!bytes) {
                piece->column[which].valid[row >> 3] &= ~(1u << (row & 7));
                piece->column[which].nulls++;
                length = 0;
            } else if (length) {
                memcpy(piece->column[which].bytes + end, bytes, length);
            }
            piece->column[which].ends[row + 1] = end + (int32_t)length;
        }
        rd_kafka_message_destroy(message);
    }
    consumer->count -= rows;
    memmove(consumer->fetched, consumer->fetched + rows, consumer->count * sizeof *consumer->fetched);
    return 0;
}

/*
 * Take the next records below *end*: at most *rows*, and at most *most_bytes* bytes unless the first one alone is larger. Wait
 * up to *wait_ms* for the first, and *more_ms* each time for more. Return 0, or -1 when memory is short.
 */
int tg_take(tg_consumer *consumer, int64_t end, int64_t rows, int64_t most_bytes, int wait_ms, int more_ms, tg_piece *piece) {
    int64_t taken = 0, total = 0, size[COLUMNS] = {0};
    memset(piece, 0, offsetof(tg_piece, text));
    if (rows > consumer->room)
        rows = consumer->room;
    for (;;) {
        int full = 0;
        while (taken < consumer->count && !full) {
            rd_kafka_message_t *message = consumer->fetched[taken];
            if (message->err == ERR_EOF && message->offset < end) {
                /* The partition ended here when it was asked; what is behind it in the queue has come since. */
                piece->ended_at = message->offset;
                rd_kafka_message_destroy(message);
                consumer->count--;
                memmove(consumer->fetched + taken, consumer->fetched + taken + 1, (consumer->count - taken) * sizeof *consumer->fetched);
                continue;
            }
            if (message->err) {
                full = 1;
                if (taken == 0) {
                    piece->error = message->err;
                    piece->error_offset = message->offset;
                    const char *words = rd_kafka_message_errstr(message);
                    snprintf(piece->text, TEXT_BYTES, "%s", words ? words : rd_kafka_err2str(message->err));
                    rd_kafka_message_destroy(message);
                    consumer->count--;
                    memmove(consumer->fetched, consumer->fetched + 1, consumer->count * sizeof *consumer->fetched);
                }
                break;
            }
            if (message->offset >= end) {
                piece->beyond = full = 1;
                break;
            }
            int64_t value_bytes = message->payload ? message->len : 0;
            if (message->payload && consumer->framed_count) /* a record without a value has no frame */
                value_bytes += frame(consumer, message, NULL);
            int64_t added = value_bytes + (message->key ? message->key_len : 0);
            if (consumer->names[0]) {
                find_headers(consumer, taken);
                added += consumer->found_bytes[0][taken] + consumer->found_bytes[1][taken];
            }
            if (taken && (total + added > most_bytes || taken == rows)) {
                full = 1;
                break;
            }
            total += added;
            size[VALUE] += value_bytes;
            size[KEY] += message->key ? message->key_len : 0;
            if (consumer->names[0]) {
                size[HEADER] += consumer->found_bytes[0][taken];
                size[FACTS] += consumer->found_bytes[1][taken];
            }
            taken++;
        }
        /* Nothing is waited for that comes after the range. */
        int whole = taken && consumer->fetched[taken - 1]->offset + 1 >= end;
        if (full || whole || taken >= rows || !fetch(consumer, rows - taken, taken ? more_ms : wait_ms))
            break;
    }
    if (!taken && !piece->error && !piece->beyond)
        take_client_events(consumer, piece);
    return taken ? fill(consumer, taken, size, piece) : 0;
}

/* --- writing --------------------------------------------------------------------------------------------------------- */

#define TOPICS 16

typedef struct {
    rd_kafka_t *client;
    rd_kafka_queue_t *queue;
    rd_kafka_topic_t *topic[TOPICS];
    char *name[TOPICS];
    int32_t error; /* the first one that a record or the client met; 0: none */
    char text[TEXT_BYTES];
} tg_producer;

typedef struct {
    const uint8_t *bytes, *valid; /* valid: a bitmap, or NULL where nothing is null */
    const void *ends;
    int64_t first; /* where the column begins in its buffers */
    int32_t wide;  /* whether ends are of 64 bits */
} tg_column;

static void fail(tg_producer *producer, int error, const char *words) {
    if (producer->error)
        return;
    char text[TEXT_BYTES] = "";
    int cause = error == ERR_FATAL ? rd_kafka_fatal_error(producer->client, text, sizeof text) : 0;
    producer->error = cause ? cause : error;
    snprintf(producer->text, TEXT_BYTES, "%s", *text ? text : words ? words : rd_kafka_err2str(error));
}

tg_producer *tg_producer_new(const char **names, const char **values, int count, char *text) {
    tg_producer *producer = calloc(1, sizeof *producer);
    if (!producer)
        return NULL;
    producer->client = client_new(PRODUCER, EVENT_DR | EVENT_ERROR, names, values, count, text);
    if (!producer->client) {
        free(producer);
        return NULL;
    }
    producer->queue = rd_kafka_queue_get_main(producer->client);
    return producer;
}

/* Drop what is queued and under way, and the producer. */
void tg_producer_close(tg_producer *producer) {
    rd_kafka_purge(producer->client, PURGE_QUEUE | PURGE_INFLIGHT);
    for (int at = 0; at < TOPICS && producer->topic[at]; at++) {
        rd_kafka_topic_destroy(producer->topic[at]);
        free(producer->name[at]);
    }
    rd_kafka_queue_destroy(producer->queue);
    rd_kafka_destroy_flags(producer->client, 0);
    free(producer);
}

static rd_kafka_topic_t *topic_of(tg_producer *producer, const char *name) {
    int at = 0;
    while (at < TOPICS && producer->topic[at] && strcmp(producer->name[at], name))
        at++;
    if (at == TOPICS) { /* the oldest makes room: its handle is cheap to make again */
        rd_kafka_topic_destroy(producer->topic[0]);
        free(producer->name[0]);
        memmove(producer->topic, producer->topic + 1, (TOPICS - 1) * sizeof *producer->topic);
        memmove(producer->name, producer->name + 1, (TOPICS - 1) * sizeof *producer->name);
        producer->topic[--at] = NULL;
    }
    if (!producer->topic[at]) {
        producer->topic[at] = rd_kafka_topic_new(producer->client, name, NULL);
        producer->name[at] = producer->topic[at] ? strdup(name) : NULL;
        if (!producer->topic[at])
            fail(producer, rd_kafka_last_error(), NULL);
    }
    return producer->topic[at];
}

/* Hear of failures; wait up to *wait_ms* for the first event. Return the first error there ever was. */
int tg_poll(tg_producer *producer, int wait_ms) {
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(producer->queue, wait_ms))) {
        if (rd_kafka_event_type(event) == EVENT_DR) {
            const rd_kafka_message_t *message;
            while ((message = rd_kafka_event_message_next(event)))
                if (message->err)
                    fail(producer, message->err, NULL);
        } else if (rd_kafka_event_type(event) == EVENT_ERROR && rd_kafka_event_error(event) == ERR_FATAL) {
            fail(producer, ERR_FATAL, NULL);
        }
        rd_kafka_event_destroy(event);
        wait_ms = 0;
    }
    return producer->error;
}

/* What a column has in a row: NULL for null, else its bytes and their number. */
static const void *entry(const tg_column *column, int64_t row, size_t *length) {
    int64_t at = column->first + row;
    *length = 0;
    if (column->valid && !(column->valid[at >> 3] >> (at & 7) & 1))
        return NULL;
    int64_t start = column->wide ? ((const int64_t *)column->ends)[at] : ((const int32_t *)column->ends)[at];
    int64_t end = column->wide ? ((const int64_t *)column->ends)[at + 1] : ((const int32_t *)column->ends)[at + 1];
    *length = end - start;
    return *length ? column->bytes + start : (const void *)""; /* no bytes are not null */
}

/* Queue a record whose value has *frame* bytes of headers before it, beside its header *name*. Return 0 or librdkafka's error. */
static int send_framed(tg_producer *producer, rd_kafka_topic_t *handle, int32_t partition, int64_t stamp_ms, const void *key,
                       size_t key_bytes, const uint8_t *value, size_t value_bytes, size_t frame_bytes, const char *name,
                       const void *header, size_t header_bytes) {
    rd_kafka_headers_t *list = rd_kafka_headers_new(4);
    int error = header ? rd_kafka_header_add(list, name, -1, header, header_bytes) : 0;
    for (size_t at = FRAME_HEAD; !error && at < frame_bytes;) {
        uint32_t name_bytes;
        int32_t length;
        if (frame_bytes - at < ENTRY_HEAD)
            error = ERR_BAD_MSG;
        if (error)
            break;
        memcpy(&name_bytes, value + at, sizeof name_bytes);
        memcpy(&length, value + at + sizeof name_bytes, sizeof length);
        size_t entry_bytes = ENTRY_HEAD + (size_t)name_bytes + (length < 0 ? 0 : length);
        error = entry_bytes > frame_bytes - at ? ERR_BAD_MSG
                                               : rd_kafka_header_add(list, (const char *)value + at + ENTRY_HEAD, name_bytes,
                                                                     length < 0 ? NULL : value + at + ENTRY_HEAD + name_bytes,
                                                                     length < 0 ? 0 : length);
        at += entry_bytes;
    }
    if (!error)
        error = rd_kafka_producev(producer->client, V_RKT, handle, V_PARTITION, partition, V_MSGFLAGS, MSG_COPY, V_VALUE,
                                  (void *)(value + frame_bytes), value_bytes - frame_bytes, V_KEY, (void *)key, key_bytes, V_TIMESTAMP,
                                  stamp_ms, V_HEADERS, list, V_END);
    if (error)
        rd_kafka_headers_destroy(list); /* it is librdkafka's only once the record is queued */
    return error;
}

/* The bytes of the frame before a value; more than *length* if it is damaged. */
static size_t frame_of(const uint8_t *value, size_t length) {
    uint32_t entries;
    if (length < FRAME_HEAD)
        return length + 1;
    memcpy(&entries, value, sizeof entries);
    return FRAME_HEAD + (size_t)entries;
}

/*
 * Queue the rows *at* to *rows* of some columns, each with one header *name* of *header_bytes* bytes (none if *headers* is
 * NULL); with *framed* the headers before each value become headers of its record. Return the first row that is not queued:
 * *rows*, or the one for which the queue has no room, or which was refused (then tg_poll tells).
 */
int64_t tg_send(tg_producer *producer, const char *topic, const tg_column *value, const tg_column *key, const int32_t *partition,
                const int64_t *stamp_ms, const char *name, const uint8_t *headers, int64_t header_bytes, int framed, int64_t at,
                int64_t rows) {
    rd_kafka_topic_t *handle = topic_of(producer, topic);
    for (; handle && at < rows; at++) {
        size_t value_bytes, key_bytes;
        const void *value_at = entry(value, at, &value_bytes), *key_at = entry(key, at, &key_bytes);
        size_t frame_bytes = framed && value_at ? frame_of(value_at, value_bytes) : 0;
        const void *header = headers ? headers + at * header_bytes : NULL;
        int error;
        if (frame_bytes > value_bytes)
            error = ERR_BAD_MSG;
        else if (frame_bytes > FRAME_HEAD)
            error = send_framed(producer, handle, partition[at], stamp_ms[at], key_at, key_bytes, value_at, value_bytes, frame_bytes,
                                name, header, header_bytes);
        else /* without a header the list of arguments ends where it would be told */
            error = rd_kafka_producev(producer->client, V_RKT, handle, V_PARTITION, partition[at], V_MSGFLAGS, MSG_COPY, V_VALUE,
                                      (void *)((const char *)value_at + frame_bytes), value_bytes - frame_bytes, V_KEY, (void *)key_at,
                                      key_bytes, V_TIMESTAMP, stamp_ms[at], headers ? V_HEADER : V_END, name, header,
                                      (ssize_t)header_bytes, V_END);
        if (error == ERR_QUEUE_FULL)
            break;
        if (error) {
            fail(producer, error, NULL);
            break;
        }
    }
    return at;
}

/*
 * Queue one record with any headers; *partition* -1: wherever the partitioner puts it; *stamp_ms* 0: now. Bytes of length -1
 * are null. Return 0, 1 when the queue has no room, -1 when it was refused (then tg_poll tells).
 */
int tg_send_one(tg_producer *producer, const char *topic, const void *value, int64_t value_bytes, const void *key, int64_t key_bytes,
                int32_t partition, int64_t stamp_ms, const char **names, const void **headers, const int64_t *header_bytes, int count) {
    rd_kafka_topic_t *handle = topic_of(producer, topic);
    if (!handle)
        return -1;
    rd_kafka_headers_t *list = rd_kafka_headers_new(count);
    for (int which = 0; which < count; which++)
        rd_kafka_header_add(list, names[which], -1, header_bytes[which] < 0 ? NULL : headers[which],
                            header_bytes[which] < 0 ? 0 : header_bytes[which]);
    int error = rd_kafka_producev(producer->client, V_RKT, handle, V_PARTITION, partition, V_MSGFLAGS, MSG_COPY, V_VALUE,
                                  (void *)(value_bytes < 0 ? NULL : value), (size_t)(value_bytes < 0 ? 0 : value_bytes), V_KEY,
                                  (void *)(key_bytes < 0 ? NULL : key), (size_t)(key_bytes < 0 ? 0 : key_bytes), V_TIMESTAMP, stamp_ms,
                                  V_HEADERS, list, V_END);
    if (!error)
        return 0;
    rd_kafka_headers_destroy(list); /* it is librdkafka's only once the record is queued */
    if (error == ERR_QUEUE_FULL)
        return 1;
    fail(producer, error, NULL);
    return -1;
}

/* Send what is queued without delay; wait up to *wait_ms* for acknowledgements. Return how many records still lack theirs. */
int tg_flush(tg_producer *producer, int wait_ms) {
    rd_kafka_flush(producer->client, wait_ms);
    tg_poll(producer, 0);
    return rd_kafka_outq_len(producer->client);
}

int tg_error(const tg_producer *producer) { return producer->error; }
const char *tg_error_text(const tg_producer *producer) { return producer->text; }
