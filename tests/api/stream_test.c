/* Streams, events and the rest of the API that is no collective: counters, versions, details,
 * names, the log, abort handles. On host and, where there are GPUs, on nccl. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/team.h"

/* ------------------------------------------------------------------------------------ fixture */

struct fixture {
    trib_device *device;
    trib_stream first, second;
};

static bool create(struct fixture *f, const char *backend, int ordinal)
{
    memset(f, 0, sizeof *f);
    return CHECK_OK(trib_device_get(&f->device, backend, ordinal)) &&
           CHECK_OK(trib_stream_create(&f->first, f->device)) &&
           CHECK_OK(trib_stream_create(&f->second, f->device)) && CHECK(f->first != f->second);
}

static void destroy(struct fixture *f)
{
    CHECK_OK(trib_stream_destroy(f->device, f->first));
    CHECK_OK(trib_stream_destroy(f->device, f->second));
}

static bool done(const struct fixture *f, trib_stream stream)
{
    int32_t out = -1;
    CHECK_OK(trib_stream_query(&out, f->device, stream));
    CHECK(out == 0 || out == 1);
    return out == 1;
}

static bool passed(const struct fixture *f, trib_event event)
{
    int32_t out = -1;
    CHECK_OK(trib_event_query(&out, f->device, event));
    return out == 1;
}

/* A job that ends on demand. */
struct door {
    _Atomic int open, reached;
};

static void wait_at_door(void *argument)
{
    struct door *door = argument;
    atomic_store(&door->reached, 1);
    while (!atomic_load(&door->open))
        check_sleep_ms(1);
}

static void shut(const struct fixture *f, struct door *door, trib_stream stream)
{
    atomic_store(&door->open, 0);
    atomic_store(&door->reached, 0);
    CHECK_OK(trib_stream_submit(f->device, wait_at_door, door, stream));
}

static void open_door(struct door *door)
{
    atomic_store(&door->open, 1);
}

static bool reached(struct door *door)
{
    for (int i = 0; i < 5000 && !atomic_load(&door->reached); i++)
        check_sleep_ms(1);
    return atomic_load(&door->reached) != 0;
}

/* A record of who ran, in which order. */
struct record {
    _Atomic int next;
    int order[64];
};

struct entry {
    struct record *record;
    int number;
};

static void write_entry(void *argument)
{
    const struct entry *entry = argument;
    entry->record->order[atomic_fetch_add(&entry->record->next, 1)] = entry->number;
}

/* ------------------------------------------------------------------------------------ streams */

static void in_order(const struct fixture *f)
{
    struct record record = {.next = 0};
    struct entry entries[64];
    for (int i = 0; i < 64; i++) {
        entries[i] = (struct entry){&record, i};
        CHECK_OK(trib_stream_submit(f->device, write_entry, &entries[i], f->first));
    }
    CHECK_OK(trib_stream_wait(f->device, f->first));
    CHECK(done(f, f->first));
    CHECK(atomic_load(&record.next) == 64);
    for (int i = 0; i < 64; i++)
        CHECK(record.order[i] == i);
}

/* One stands still, the other runs. (With copies: CUDA may run all submitted functions on one
 * thread.) */
static void independent(const struct fixture *f)
{
    struct door door;
    struct record record = {.next = 0};
    struct entry behind = {&record, 1};
    const int there = 42;
    int back = 0;
    void *memory = NULL;
    CHECK_OK(trib_device_alloc(&memory, f->device, sizeof there));
    shut(f, &door, f->first);
    CHECK_OK(trib_stream_submit(f->device, write_entry, &behind, f->first));
    CHECK(reached(&door));
    CHECK_OK(trib_device_copy(f->device, memory, &there, sizeof there, f->second));
    CHECK_OK(trib_device_copy(f->device, &back, memory, sizeof back, f->second));
    CHECK_OK(trib_stream_wait(f->device, f->second));
    CHECK(back == 42);
    CHECK(!done(f, f->first) && atomic_load(&record.next) == 0);
    open_door(&door);
    CHECK_OK(trib_stream_wait(f->device, f->first));
    CHECK(atomic_load(&record.next) == 1);
    CHECK_OK(trib_device_free(f->device, memory));
}

static void wait_elsewhere(int rank, int size, void *argument)
{
    const struct fixture *f = argument;
    (void)rank;
    (void)size;
    CHECK_OK(trib_stream_wait(f->device, f->first));
    CHECK(done(f, f->first));
}

/* Any thread may wait, several at once. */
static void many_waiters(struct fixture *f)
{
    struct record record = {.next = 0};
    struct entry entry = {&record, 5};
    for (int i = 0; i < 20; i++)
        CHECK_OK(trib_stream_submit(f->device, write_entry, &entry, f->first));
    check_ranks(6, wait_elsewhere, f);
    CHECK(atomic_load(&record.next) == 20);
}

static void copies(const struct fixture *f)
{
    enum { BYTES = 100000 };
    char *there = malloc(BYTES), *back = malloc(BYTES);
    void *a = NULL, *b = NULL, *none = NULL, *other_none = NULL;
    if (there == NULL || back == NULL)
        abort();
    for (int i = 0; i < BYTES; i++)
        there[i] = (char)(i * 31 % 127 + 1);
    memset(back, 0, BYTES);
    CHECK_OK(trib_device_alloc(&a, f->device, BYTES));
    CHECK_OK(trib_device_alloc(&b, f->device, BYTES));
    CHECK((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0);
    CHECK_OK(trib_device_alloc(&none, f->device, 0));
    CHECK_OK(trib_device_alloc(&other_none, f->device, 0));
    CHECK(none != NULL && other_none != NULL && none != other_none);
    CHECK_OK(trib_device_copy(f->device, a, there, BYTES, f->first));
    CHECK_OK(trib_device_copy(f->device, b, a, BYTES, f->first));
    CHECK_OK(trib_device_copy(f->device, back, b, BYTES, f->first));
    CHECK_OK(trib_device_copy(f->device, back, a, 0, f->first));
    CHECK_OK(trib_device_copy(f->device, NULL, NULL, 0, f->first));
    CHECK_OK(trib_stream_wait(f->device, f->first));
    CHECK(memcmp(there, back, BYTES) == 0);
    CHECK_OK(trib_device_free(f->device, a));
    CHECK_OK(trib_device_free(f->device, b));
    CHECK_OK(trib_device_free(f->device, none));
    CHECK_OK(trib_device_free(f->device, other_none));
    free(there);
    free(back);
}

/* Destroy waits for what is queued. */
static void destroyed_with_work(const struct fixture *f)
{
    struct record record = {.next = 0};
    struct entry entry = {&record, 1};
    trib_stream stream = NULL;
    CHECK_OK(trib_stream_create(&stream, f->device));
    for (int i = 0; i < 10; i++)
        CHECK_OK(trib_stream_submit(f->device, write_entry, &entry, stream));
    CHECK_OK(trib_stream_destroy(f->device, stream));
    CHECK(atomic_load(&record.next) == 10);
}

static void default_stream(const struct fixture *f)
{
    struct record record = {.next = 0};
    struct entry entries[2] = {{&record, 1}, {&record, 2}};
    CHECK_OK(trib_stream_submit(f->device, write_entry, &entries[0], NULL));
    CHECK_OK(trib_stream_submit(f->device, write_entry, &entries[1], NULL));
    CHECK_OK(trib_stream_wait(f->device, NULL));
    CHECK(done(f, NULL));
    CHECK(record.order[0] == 1 && record.order[1] == 2);
}

enum { USERS = 4, ROUNDS = 200 };

static void count_one(void *argument)
{
    ++*(int *)argument; /* the stream runs one after the other */
}

struct users {
    const struct fixture *f;
    int counted;
};

/* Each has its own events and memory, and all have the stream. */
static void use_default(int user, int n, void *argument)
{
    struct users *users = argument;
    trib_device *device = users->f->device;
    trib_event event = NULL;
    char from[64], to[64];
    (void)n;
    memset(from, user, sizeof from);
    CHECK_OK(trib_event_create(&event, device));
    for (int i = 0; i < ROUNDS; i++) {
        int32_t out;
        memset(to, -1, sizeof to);
        CHECK_OK(trib_stream_submit(device, count_one, &users->counted, NULL));
        CHECK_OK(trib_device_copy(device, to, from, sizeof to, NULL));
        CHECK_OK(trib_event_record(device, event, NULL));
        CHECK_OK(trib_stream_wait_event(device, event, NULL));
        CHECK_OK(trib_stream_query(&out, device, NULL));
        CHECK_OK(i % 2 == 0 ? trib_event_wait(device, event) : trib_stream_wait(device, NULL));
        CHECK(memcmp(to, from, sizeof to) == 0);
    }
    CHECK_OK(trib_event_destroy(device, event));
}

static void default_stream_shared(const struct fixture *f)
{
    struct users users = {f, 0};
    check_ranks(USERS, use_default, &users);
    CHECK_OK(trib_stream_wait(f->device, NULL));
    CHECK_MSG(users.counted == USERS * ROUNDS, "%d", users.counted);
}

/* ------------------------------------------------------------------------------------- events */

static void events_order(const struct fixture *f)
{
    struct door door;
    struct record record = {.next = 0};
    struct entry early = {&record, 1}, late = {&record, 2};
    trib_event event = NULL;
    CHECK_OK(trib_event_create(&event, f->device));
    CHECK(passed(f, event)); /* it never recorded anything */
    CHECK_OK(trib_stream_wait_event(f->device, event, f->second));
    CHECK_OK(trib_stream_wait(f->device, f->second));
    shut(f, &door, f->first);
    CHECK_OK(trib_stream_submit(f->device, write_entry, &early, f->first));
    CHECK_OK(trib_event_record(f->device, event, f->first));
    CHECK_OK(trib_stream_wait_event(f->device, event, f->second));
    CHECK_OK(trib_stream_submit(f->device, write_entry, &late, f->second));
    CHECK(reached(&door));
    check_sleep_ms(5);
    CHECK(!passed(f, event) && !done(f, f->second));
    open_door(&door);
    CHECK_OK(trib_event_wait(f->device, event));
    CHECK(passed(f, event));
    CHECK_OK(trib_stream_wait(f->device, f->second));
    CHECK(record.order[0] == 1 && record.order[1] == 2);
    CHECK_OK(trib_event_destroy(f->device, event));
}

/* A stream that waits for an event waits for what was recorded at that moment, not for what is
 * recorded later; and an event that goes away is still waited for. */
static void events_again(const struct fixture *f)
{
    struct door door;
    trib_event event = NULL;
    CHECK_OK(trib_event_create(&event, f->device));
    CHECK_OK(trib_event_record(f->device, event, f->first)); /* at once */
    CHECK_OK(trib_stream_wait_event(f->device, event, f->second));
    shut(f, &door, f->first);
    CHECK_OK(trib_event_record(f->device, event, f->first)); /* behind the door */
    CHECK_OK(trib_stream_wait(f->device, f->second));        /* knows the first record only */
    CHECK(reached(&door));
    CHECK(!passed(f, event));
    CHECK_OK(trib_event_record(f->device, event, f->second)); /* moved to another stream */
    CHECK_OK(trib_event_wait(f->device, event));
    CHECK(!done(f, f->first));
    CHECK_OK(trib_event_record(f->device, event, f->first));
    CHECK_OK(trib_stream_wait_event(f->device, event, f->second));
    CHECK_OK(trib_event_destroy(f->device, event));
    check_sleep_ms(2);
    CHECK(!done(f, f->second));
    open_door(&door);
    CHECK_OK(trib_stream_wait(f->device, f->second));
    CHECK_OK(trib_stream_wait(f->device, f->first));
}

/* ------------------------------------------------------- waiting for what is being destroyed */

/* Any thread may wait and query, also while the owner destroys: it gets TRIB_OK, or an
 * error once the object is gone. Only on host are handles looked up before they are followed. */
struct shared {
    const struct fixture *f;
    trib_stream stream;
    trib_event event;
    int turn; /* how long the owner waits */
    _Atomic int arrived, gone;
};

static void use_shared(int index, int size, void *argument)
{
    struct shared *shared = argument;
    trib_device *device = shared->f->device;
    int32_t out = 0;
    atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < size) {}
    if (index == 0) {
        for (volatile int spin = 0; spin < shared->turn * 500; spin++)
            continue;
        CHECK_OK(trib_event_destroy(device, shared->event));
        CHECK_OK(trib_stream_destroy(device, shared->stream));
        atomic_store(&shared->gone, 1);
        return;
    }
    while (!atomic_load(&shared->gone)) {
        const trib_status stream = index % 2 == 0 ? trib_stream_wait(device, shared->stream)
                                                  : trib_stream_query(&out, device, shared->stream);
        const trib_status event = index % 2 == 0 ? trib_event_wait(device, shared->event)
                                                 : trib_event_query(&out, device, shared->event);
        if (!CHECK(stream == TRIB_OK || stream == TRIB_ERR_INVALID_STREAM) ||
            !CHECK(event == TRIB_OK || event == TRIB_ERR_INVALID_ARGUMENT))
            break;
    }
}

static void nothing(void *argument)
{
    (void)argument;
}

static void destroyed_while_awaited(const struct fixture *f)
{
    const int rounds = getenv("TRIB_TEST_QUICK") == NULL ? 1000 : 300;
    for (int round = 0; round < rounds; round++) {
        struct shared shared = {.f = f, .turn = round % 20};
        if (!CHECK_OK(trib_stream_create(&shared.stream, f->device)) ||
            !CHECK_OK(trib_event_create(&shared.event, f->device)))
            return;
        CHECK_OK(trib_stream_submit(f->device, nothing, NULL, shared.stream));
        CHECK_OK(trib_event_record(f->device, shared.event, shared.stream));
        check_ranks(3, use_shared, &shared);
    }
}

/* Also while the owner records again. */
static void ask_recorded(int index, int size, void *argument)
{
    struct shared *shared = argument;
    trib_device *device = shared->f->device;
    int32_t out = 0;
    atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < size) {}
    for (int i = 0; i < 200 && index == 0; i++)
        CHECK_OK(trib_event_record(device, shared->event, shared->stream));
    if (index == 0)
        atomic_store(&shared->gone, 1);
    while (!atomic_load(&shared->gone))
        CHECK_OK(index == 1 ? trib_event_wait(device, shared->event)
                            : trib_event_query(&out, device, shared->event));
}

static void recorded_while_awaited(const struct fixture *f)
{
    struct shared shared = {.f = f};
    if (!CHECK_OK(trib_stream_create(&shared.stream, f->device)) ||
        !CHECK_OK(trib_event_create(&shared.event, f->device)))
        return;
    check_ranks(3, ask_recorded, &shared);
    CHECK_OK(trib_event_destroy(f->device, shared.event));
    CHECK_OK(trib_stream_destroy(f->device, shared.stream));
}

static void elapsed_time(const struct fixture *f)
{
    int ms = 20;
    float found = -1;
    trib_event start = NULL, end = NULL;
    CHECK_OK(trib_event_create(&start, f->device));
    CHECK_OK(trib_event_create(&end, f->device));
    CHECK_OK(trib_event_record(f->device, start, f->first));
    CHECK_OK(trib_stream_submit(f->device, team_rest, &ms, f->first));
    CHECK_OK(trib_event_record(f->device, end, f->first));
    CHECK_OK(trib_stream_wait(f->device, f->first));
    CHECK_OK(trib_event_elapsed(&found, f->device, start, end));
    CHECK_MSG(found >= 19 && found < 2000, "%g ms, expected 20", found);
    CHECK_OK(trib_event_elapsed(&found, f->device, start, start));
    CHECK(found == 0);
    CHECK_OK(trib_event_destroy(f->device, start));
    CHECK_OK(trib_event_destroy(f->device, end));
}

static void streams(const char *backend)
{
    static const struct {
        const char *name;
        void (*body)(const struct fixture *f);
    } cases[] = {{"a stream is in order", in_order},
                 {"two streams are not", independent},
                 {"copies", copies},
                 {"a stream destroyed with work", destroyed_with_work},
                 {"the default stream", default_stream},
                 {"the default stream of several threads", default_stream_shared},
                 {"events order streams", events_order},
                 {"events recorded again", events_again},
                 {"elapsed time", elapsed_time}};
    struct fixture f;
    check_begin("%s: streams created", backend);
    const bool good = create(&f, backend, team_limit(backend) - 1);
    check_end();
    for (size_t i = 0; i < sizeof cases / sizeof *cases && good; i++) {
        check_begin("%s: %s", backend, cases[i].name);
        cases[i].body(&f);
        check_end();
    }
    if (strcmp(backend, "host") == 0) {
        check_begin("%s: destroyed while others wait and ask", backend);
        destroyed_while_awaited(&f);
        check_end();
        check_begin("%s: recorded again while others wait and ask", backend);
        recorded_while_awaited(&f);
        check_end();
    }
    check_begin("%s: many threads wait for a stream", backend);
    many_waiters(&f);
    destroy(&f);
    check_end();
}

/* ----------------------------------------------------------------------------------- counters */

enum { LISTS = 5 };

struct counting {
    struct team team;
    void *memory[TEAM_MAX];
};

static void count_rank(int rank, int size, void *argument)
{
    struct counting *counting = argument;
    trib_comm *comm = counting->team.comms[rank];
    trib_stream stream = counting->team.streams[rank];
    float *data = counting->memory[rank];
    const trib_tensor list[] = {{data, 10, TRIB_F32, 0}, {data + 16, 6, TRIB_F32, 0}};
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.size == sizeof counters && counters.calls == 0 && counters.bytes == 0 &&
          counters.backend_calls == 0 && counters.lists_queued == 0 &&
          counters.lists_committed == 0);
    CHECK_OK(trib_allreduce(comm, data, data, 32, TRIB_F32, TRIB_MAX, stream));
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.calls == 1 && counters.bytes == 128 && counters.backend_calls == 1);
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_allreduce(comm, data, data, 8, TRIB_F32, TRIB_MAX, stream));
    CHECK_OK(trib_allreduce(comm, data + 8, data + 8, 8, TRIB_F32, TRIB_MAX, stream));
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.calls == 1); /* remembered, not queued */
    CHECK_OK(trib_batch_end(comm));
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.calls == 3 && counters.bytes == 192 && counters.backend_calls == 2);
    for (int i = 0; i < LISTS; i++)
        CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_MAX, stream));
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.lists_queued == LISTS && counters.lists_committed <= LISTS);
    CHECK_OK(trib_stream_wait(counting->team.devices[rank], stream));
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.lists_committed == LISTS && counters.calls == 3 + LISTS);
    CHECK_MSG(counters.bytes == 192 + LISTS * 64 && counters.backend_calls == 2 + LISTS,
              "%llu bytes, %llu backend calls", (unsigned long long)counters.bytes,
              (unsigned long long)counters.backend_calls);
    CHECK(counters.workspace_bytes >= 64);
    CHECK_OK(trib_comm_close(comm, 10000));
    counters.size = 3;
    CHECK_STATUS(trib_comm_counters(&counters, comm), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_comm_counters(NULL, comm), TRIB_ERR_INVALID_ARGUMENT);
    (void)size;
}

static void counters(const char *backend)
{
    struct counting counting;
    const int size = team_limit(backend) < 2 ? 1 : 2;
    check_begin("%s: counters", backend);
    if (team_create(&counting.team, backend, size, NULL)) {
        const float zeros[32] = {0};
        for (int rank = 0; rank < size; rank++) {
            trib_device *device = counting.team.devices[rank];
            CHECK_OK(trib_device_alloc(&counting.memory[rank], device, sizeof zeros));
            CHECK_OK(trib_device_copy(device, counting.memory[rank], zeros, sizeof zeros,
                                      counting.team.streams[rank]));
            CHECK_OK(trib_stream_wait(device, counting.team.streams[rank]));
        }
        check_ranks(size, count_rank, &counting);
        for (int rank = 0; rank < size; rank++)
            CHECK_OK(trib_device_free(counting.team.devices[rank], counting.memory[rank]));
    }
    team_destroy(&counting.team);
    check_end();
}

/* ------------------------------------------------------------- what needs no communicator */

static void versions(void)
{
    uint32_t version = 0;
    int32_t devices = 0;
    bool host = false;
    check_begin("versions, backends, names");
    CHECK(trib_version() == TRIB_VERSION);
    for (int32_t i = 0; i < trib_backend_count(); i++) {
        const char *name = trib_backend_name(i);
        host = host || strcmp(name, "host") == 0;
        CHECK_OK(trib_backend_version(&version, name));
        CHECK(version > 0);
        printf("  backend %s, version %u\n", name, (unsigned)version);
    }
    CHECK(host);
    CHECK_OK(trib_backend_version(&version, "host"));
    CHECK(version == TRIB_VERSION);
    CHECK_OK(trib_backend_devices(&devices, "host"));
    CHECK(devices == 64);
    static const size_t sizes[] = {0, 2, 2, 4, 8, 1, 1, 4, 4, 8, 8, 0};
    static const char *const names[] = {"?",  "f16", "bf16", "f32", "f64", "i8",
                                        "u8", "i32", "u32",  "i64", "u64", "?"};
    static const char *const ops[] = {"?", "sum", "prod", "min", "max", "avg", "?"};
    for (int i = 0; i < 12; i++)
        CHECK(trib_dtype_size(i) == sizes[i] && strcmp(trib_dtype_name(i), names[i]) == 0);
    for (int i = 0; i < 7; i++)
        CHECK(strcmp(trib_op_name(i), ops[i]) == 0);
    CHECK(trib_dtype_size(-1) == 0 && strcmp(trib_op_name(-1), "?") == 0);
    CHECK(strcmp(trib_status_name(TRIB_ERR_ABORTED), "TRIB_ERR_ABORTED") == 0);
    CHECK(strcmp(trib_status_name(TRIB_OK), "TRIB_OK") == 0);
    CHECK(strcmp(trib_status_message(TRIB_OK), "success") == 0);
    CHECK(trib_status_name(12345) != NULL && trib_status_message(-3) != NULL);
    check_end();
}

static void own_detail(int rank, int size, void *argument)
{
    _Atomic int *arrived = argument;
    char name[16];
    trib_device *device = NULL;
    CHECK(trib_last_detail()[0] == '\0'); /* nothing has failed on this thread */
    (void)snprintf(name, sizeof name, "pigeon%d", rank);
    CHECK_STATUS(trib_device_get(&device, name, 0), TRIB_ERR_UNKNOWN_NAME);
    team_barrier(arrived, size);
    CHECK_DETAIL(name);
    CHECK_OK(trib_device_get(&device, "host", rank)); /* success leaves it as it was */
    CHECK_DETAIL(name);
}

static void details(void)
{
    _Atomic int arrived = 0;
    check_begin("every thread has its own detail");
    check_ranks(8, own_detail, &arrived);
    check_end();
}

struct log {
    _Atomic int lines;
};

static void on_line(void *context, int32_t level, const char *line)
{
    struct log *log = context;
    atomic_fetch_add(&log->lines, 1);
    CHECK(level >= TRIB_LOG_ERROR && level <= TRIB_LOG_DEBUG);
    CHECK(line != NULL && line[0] != '\0' && strchr(line, '\n') == NULL);
}

static void logs(const char *backend)
{
    struct log log = {0};
    struct team team;
    check_begin("%s: the log", backend);
    CHECK_OK(trib_log_set(on_line, &log, TRIB_LOG_DEBUG));
    if (team_create(&team, backend, 1, NULL))
        CHECK_OK(trib_barrier(team.comms[0], team.streams[0]));
    team_destroy(&team);
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    const int lines = atomic_load(&log.lines);
    if (team_create(&team, backend, 1, NULL))
        CHECK_OK(trib_barrier(team.comms[0], team.streams[0]));
    team_destroy(&team);
    CHECK(atomic_load(&log.lines) == lines); /* off means off */
    CHECK_STATUS(trib_log_set(on_line, &log, 0), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_log_set(on_line, &log, TRIB_LOG_DEBUG + 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    check_end();
}

/* Handles are counted: every clone is one to release, in any order. (The address sanitizer says
 * if one is freed early or never.) */
static void handles(const char *backend)
{
    enum { CLONES = 10 };
    trib_abort *clones[CLONES] = {NULL}, *null = (trib_abort *)&clones;
    struct team team;
    check_begin("%s: abort handles are counted", backend);
    if (team_create(&team, backend, 1, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&clones[0], team.comms[0]));
        for (int i = 1; i < CLONES; i++)
            CHECK_OK(trib_abort_clone(&clones[i], clones[i / 2]));
        team_close(&team);
        for (int i = 0; i < CLONES; i++) {
            (void)trib_abort_raised(clones[(i * 3) % CLONES]);
            trib_abort_release(clones[(i * 3) % CLONES]);
        }
    }
    CHECK_STATUS(trib_abort_clone(&null, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(null == NULL);
    CHECK_STATUS(trib_abort_raise(NULL, "nobody"), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(trib_abort_raised(NULL) == 0);
    CHECK_STATUS(trib_abort_status(NULL), TRIB_ERR_INVALID_ARGUMENT);
    team_destroy(&team);
    check_end();
}

int main(void)
{
    static const char *const backends[] = {"host", "nccl"};
    versions();
    details();
    for (int i = 0; i < 2; i++) {
        if (team_limit(backends[i]) == 0) {
            check_skip("%s: there is no device", backends[i]);
            continue;
        }
        streams(backends[i]);
        counters(backends[i]);
        logs(backends[i]);
        handles(backends[i]);
    }
    return check_finish("stream_test");
}
