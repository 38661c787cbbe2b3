/* Which stream waits for which in a step of a reducer: over host, with a log of what is queued where. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/reducer/reducer.h"
#include "tests/check.h"
#include "tests/own_backend.h"

extern const struct tri_backend tri_backend_host;

enum { GRADIENTS = 3, EACH = 10, EVENTS = 64 };

static struct tri_device_ops device;
static struct tri_transport_ops transport;

/* ---------------------------------------------------------------------------------------- the log */

/* "T>R" the reducer's stream waits for T, "T>R!" it could not; "s" something is queued on S. */
static char said[256];
static struct {
    trib_event event;
    trib_stream stream;
} records[EVENTS];                                /* where each event was recorded last */
static trib_stream own, gradients, finish, other; /* R, T, S, O */
static uint32_t failing;                          /* bit i: wait i of a step fails */
static int waits;                                 /* of the step */
static trib_event unrecorded;                     /* no stream takes this event */

static char name_of(trib_stream stream)
{
    return stream == own         ? 'R'
           : stream == gradients ? 'T'
           : stream == finish    ? 'S'
           : stream == other     ? 'O'
                                 : '?';
}

static trib_status record(int32_t of, trib_event event, trib_stream stream)
{
    size_t i = 0;
    if (event == unrecorded)
        return tri_fail(TRIB_ERR_CUDA, "injected failure");
    while (i + 1 < EVENTS && records[i].event != event && records[i].event != NULL)
        i++;
    records[i].event = event;
    records[i].stream = stream;
    return tri_backend_host.device->event_record(of, event, stream);
}

static trib_stream recorded_on(trib_event event)
{
    size_t i = 0;
    while (i + 1 < EVENTS && records[i].event != event)
        i++;
    return records[i].stream;
}

static void say(const char *word)
{
    (void)snprintf(said + strlen(said), sizeof said - strlen(said), "%s%s",
                   said[0] == '\0' ? "" : " ", word);
}

static trib_status wait(int32_t of, trib_event event, trib_stream stream)
{
    const bool fails = (failing >> waits++ & 1) != 0;
    const char word[] = {name_of(recorded_on(event)), '>', name_of(stream), fails ? '!' : '\0',
                         '\0'};
    say(word);
    return fails ? tri_fail(TRIB_ERR_CUDA, "injected failure")
                 : tri_backend_host.device->stream_wait_event(of, event, stream);
}

static trib_status submit(struct tri_transport *to, void (*function)(void *argument),
                          const void *argument, size_t bytes, trib_stream stream)
{
    const char word[] = {(char)(name_of(stream) - 'A' + 'a'), '\0'};
    say(word);
    return tri_backend_host.transport->submit(to, function, argument, bytes, stream);
}

static void open_backend(void)
{
    backend = tri_backend_host;
    device = *backend.device;
    transport = *backend.transport;
    device.event_record = record;
    device.stream_wait_event = wait;
    transport.submit = submit;
    backend.device = &device;
    backend.transport = &transport;
}

/* --------------------------------------------------------------------------------------- a reducer */

struct stepping {
    trib_device *device;
    trib_comm *comm;
    trib_reducer *reducer;
    float data[GRADIENTS][EACH];
};

static bool start(struct stepping *stepping)
{
    trib_id id;
    trib_tensor tensors[GRADIENTS];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.bucket_bytes = options.first_bytes = 1; /* a bucket for each gradient */
    *stepping = (struct stepping){.reducer = NULL};
    for (int i = 0; i < GRADIENTS; i++)
        tensors[i] = (trib_tensor){stepping->data[i], EACH, TRIB_F32, 0};
    CHECK_OK(trib_device_get(&stepping->device, "host", 0));
    CHECK_OK(trib_stream_create(&gradients, stepping->device));
    CHECK_OK(trib_stream_create(&finish, stepping->device));
    CHECK_OK(trib_stream_create(&other, stepping->device));
    CHECK_OK(trib_id_create(&id, "host"));
    if (!CHECK_OK(trib_comm_create(&stepping->comm, &id, 0, 1, 0, NULL)) ||
        !CHECK_OK(
            trib_reducer_create(&stepping->reducer, stepping->comm, tensors, GRADIENTS, &options)))
        return false;
    own = stepping->reducer->stream;
    said[0] = '\0';
    waits = 0;
    return CHECK(trib_reducer_buckets(stepping->reducer) == GRADIENTS);
}

static void end(struct stepping *stepping)
{
    if (stepping->reducer != NULL)
        CHECK_OK(trib_reducer_destroy(stepping->reducer));
    CHECK_OK(trib_comm_destroy(stepping->comm));
    CHECK_OK(trib_stream_destroy(stepping->device, gradients));
    CHECK_OK(trib_stream_destroy(stepping->device, finish));
    CHECK_OK(trib_stream_destroy(stepping->device, other));
    own = gradients = finish = other = NULL;
}

/* End a step on `stream`; what has been queued for it must be `expected`. */
static void end_step(struct stepping *stepping, trib_stream stream, trib_status status,
                     const char *expected)
{
    CHECK_STATUS(trib_reducer_finish(stepping->reducer, stream), status);
    CHECK_MSG(strcmp(said, expected) == 0, "queued: %s; expected: %s", said, expected);
    said[0] = '\0';
    waits = 0;
    failing = 0;
}

/* The same, of every gradient, ready on `stream`, on S. */
static void step(struct stepping *stepping, trib_stream stream, trib_status status,
                 const char *expected)
{
    for (size_t i = 0; i < GRADIENTS; i++)
        CHECK_OK(trib_reducer_ready(stepping->reducer, i, stream));
    end_step(stepping, finish, status, expected);
}

/* What is queued on S from now on waits for this. */
static atomic_bool closed;

static void wait_for_gate(void *argument)
{
    (void)argument;
    while (atomic_load(&closed))
        check_sleep_ms(1);
}

static void close_gate(void)
{
    atomic_store(&closed, true);
    CHECK_OK(device.stream_submit(0, wait_for_gate, NULL, finish));
}

/* Nothing says that the step has run until the gate is open; then it has. */
static void check_gate(struct stepping *stepping)
{
    CHECK_STATUS(trib_reducer_wait(stepping->reducer, 0), TRIB_ERR_TIMEOUT);
    atomic_store(&closed, false);
    CHECK_OK(trib_reducer_wait(stepping->reducer, TRIB_NO_TIMEOUT));
}

/* The last bucket and the end lie on the stream of the finish, and the next step behind them. */
static void ends_on_the_stream_of_the_finish(void)
{
    struct stepping stepping;
    check_begin("a step ends on the stream of its finish");
    if (start(&stepping)) {
        step(&stepping, gradients, TRIB_OK, "T>R r T>R r R>S T>S s s S>R");
        step(&stepping, finish, TRIB_OK, "S>R r S>R r R>S s s S>R");
        CHECK_OK(trib_reducer_wait(stepping.reducer, TRIB_NO_TIMEOUT));
    }
    end(&stepping);
    check_end();
}

/* What was queued on the reducer's own stream has not run, so the step ends behind it. */
static void ends_on_its_own_stream(void)
{
    struct stepping stepping;
    check_begin("a step whose finish cannot wait ends on the reducer's own stream");
    if (start(&stepping)) {
        failing = 1 << 2;
        step(&stepping, gradients, TRIB_ERR_CUDA, "T>R r T>R r R>S! S>R R>S");
        CHECK_OK(trib_reducer_wait(stepping.reducer, TRIB_NO_TIMEOUT));
    }
    end(&stepping);
    check_end();
}

/* The memory's, or the one that buckets wait for. */
static void is_waited_for_by_another_event(void)
{
    struct stepping stepping;
    check_begin("a step whose end takes one event of two");
    if (start(&stepping)) {
        close_gate();
        failing = 1 << 4;
        step(&stepping, gradients, TRIB_ERR_CUDA, "T>R r T>R r R>S T>S s s S>R! S>R");
        check_gate(&stepping);
    }
    end(&stepping);
    check_end();
}

static void is_waited_for_without_a_mark(void)
{
    struct stepping stepping;
    check_begin("a step whose memory cannot be marked");
    if (start(&stepping)) {
        step(&stepping, gradients, TRIB_OK, "T>R r T>R r R>S T>S s s S>R");
        close_gate();
        unrecorded = stepping.reducer->memory.event;
        step(&stepping, gradients, TRIB_ERR_CUDA, "T>R r T>R r R>S T>S s s S>R S>R");
        unrecorded = NULL;
        CHECK(stepping.reducer->memory.lost);
        check_gate(&stepping);
        CHECK(!stepping.reducer->memory.lost);
    }
    end(&stepping);
    check_end();
}

/* A step for whose end, behind the gate, no stream waits. */
static void step_apart(struct stepping *stepping)
{
    close_gate();
    failing = 3 << 4;
    step(stepping, gradients, TRIB_ERR_CUDA, "T>R r T>R r R>S T>S s s S>R! S>R!");
}

/* A step of two that fail behind each other: the reducer's own stream waits for the first one's end
 * before it, or never, and then nothing is queued. */
static void ends_apart(uint32_t later, bool ready, const char *expected, const char *what)
{
    struct stepping stepping;
    check_begin("a step whose end no stream waits for, then %s", what);
    if (start(&stepping)) {
        step_apart(&stepping);
        failing = later;
        for (size_t i = 0; ready && i < GRADIENTS; i++)
            CHECK_OK(trib_reducer_ready(stepping.reducer, i, other));
        end_step(&stepping, other, TRIB_ERR_CUDA, expected);
        if (later != 0) {
            CHECK_OK(trib_stream_wait(stepping.device, own));
            failing = UINT32_MAX;
        }
        check_gate(&stepping);
        failing = 0;
    }
    end(&stepping);
    check_end();
}

/* The reducer is destroyed in a step: what it marks must not forget the one before. */
static void is_destroyed(void)
{
    struct stepping stepping;
    check_begin("a reducer whose last end no stream waits for is destroyed in a step");
    if (start(&stepping)) {
        step_apart(&stepping);
        CHECK_OK(trib_reducer_ready(stepping.reducer, 0, other));
        stepping.comm->close_timeout_ms = 50;
        failing = UINT32_MAX;
        CHECK_STATUS(trib_reducer_destroy(stepping.reducer), TRIB_ERR_TIMEOUT);
        failing = 0;
        stepping.reducer = NULL;
        atomic_store(&closed, false);
        CHECK_OK(trib_stream_wait(stepping.device, finish));
        CHECK_OK(trib_quiesce(10000));
    }
    end(&stepping);
    check_end();
}

int main(void)
{
    open_backend();
    ends_on_the_stream_of_the_finish();
    ends_on_its_own_stream();
    is_waited_for_by_another_event();
    is_waited_for_without_a_mark();
    ends_apart(0, false, "S>R R>O O>R", "a bare finish");
    ends_apart(0, true, "S>R O>R R>O", "a step");
    ends_apart(1, false, "S>R!", "a finish behind it that cannot wait, either");
    is_destroyed();
    return check_finish("order_test");
}
