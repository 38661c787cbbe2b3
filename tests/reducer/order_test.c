/* Which stream waits for which in a step of a reducer: over host, with a log of what is queued where. */
#include <stdio.h>
#include <string.h>

#include "csrc/backend.h"
#include "csrc/base/status.h"
#include "csrc/reducer/reducer.h"
#include "tests/check.h"

extern const struct tri_backend tri_backend_host;

enum { GRADIENTS = 3, EACH = 10, EVENTS = 64 };

static struct tri_device_ops device;
static struct tri_transport_ops transport;
static struct tri_backend backend;

/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {&backend, NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0 ? &backend : NULL;
}

/* ---------------------------------------------------------------------------------------- the log */

/* "T>R" the reducer's stream waits for T, "T>R!" it could not; "s" something is queued on S. */
static char said[256];
static struct {
    trib_event event;
    trib_stream stream;
} records[EVENTS];                         /* where each event was recorded last */
static trib_stream own, gradients, finish; /* R, T, S */
static int until_failure = -1;             /* waits that still succeed; below 0: all */
static bool held;                          /* no event passes */

static char name_of(trib_stream stream)
{
    return stream == own ? 'R' : stream == gradients ? 'T' : stream == finish ? 'S' : '?';
}

static trib_status record(int32_t of, trib_event event, trib_stream stream)
{
    size_t i = 0;
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
    const bool fails = until_failure == 0;
    const char word[] = {name_of(recorded_on(event)), '>', name_of(stream), fails ? '!' : '\0',
                         '\0'};
    say(word);
    until_failure -= until_failure >= 0;
    return fails ? tri_fail(TRIB_ERR_CUDA, "injected failure")
                 : tri_backend_host.device->stream_wait_event(of, event, stream);
}

static trib_status query(int32_t of, trib_event event, bool *out_done)
{
    TRI_TRY(tri_backend_host.device->event_query(of, event, out_done));
    *out_done = *out_done && !held;
    return TRIB_OK;
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
    device.event_query = query;
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
    CHECK_OK(trib_id_create(&id, "host"));
    if (!CHECK_OK(trib_comm_create(&stepping->comm, &id, 0, 1, 0, NULL)) ||
        !CHECK_OK(
            trib_reducer_create(&stepping->reducer, stepping->comm, tensors, GRADIENTS, &options)))
        return false;
    own = stepping->reducer->stream;
    return CHECK(trib_reducer_buckets(stepping->reducer) == GRADIENTS);
}

static void end(struct stepping *stepping)
{
    if (stepping->reducer != NULL)
        CHECK_OK(trib_reducer_destroy(stepping->reducer));
    CHECK_OK(trib_comm_destroy(stepping->comm));
    CHECK_OK(trib_stream_destroy(stepping->device, gradients));
    CHECK_OK(trib_stream_destroy(stepping->device, finish));
    own = gradients = finish = NULL;
}

/* Every gradient gets ready on `stream`; what is then queued must be `expected`. */
static void step(struct stepping *stepping, trib_stream stream, trib_status status,
                 const char *expected)
{
    said[0] = '\0';
    for (size_t i = 0; i < GRADIENTS; i++)
        CHECK_OK(trib_reducer_ready(stepping->reducer, i, stream));
    CHECK_STATUS(trib_reducer_finish(stepping->reducer, finish), status);
    CHECK_MSG(strcmp(said, expected) == 0, "queued: %s; expected: %s", said, expected);
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
        until_failure = 2;
        step(&stepping, gradients, TRIB_ERR_CUDA, "T>R r T>R r R>S! S>R R>S");
        CHECK_OK(trib_reducer_wait(stepping.reducer, TRIB_NO_TIMEOUT));
    }
    end(&stepping);
    check_end();
}

/* The reducer's own stream does not know of the end: the event does. */
static void ends_apart(void)
{
    struct stepping stepping;
    check_begin("a wait for a step whose end the reducer's own stream could not wait for");
    if (start(&stepping)) {
        until_failure = 4;
        step(&stepping, gradients, TRIB_ERR_CUDA, "T>R r T>R r R>S T>S s s S>R!");
        CHECK_OK(trib_stream_wait(stepping.device, own));
        held = true;
        CHECK_STATUS(trib_reducer_wait(stepping.reducer, 0), TRIB_ERR_TIMEOUT);
        held = false;
        CHECK_OK(trib_reducer_wait(stepping.reducer, TRIB_NO_TIMEOUT));
    }
    end(&stepping);
    check_end();
}

int main(void)
{
    open_backend();
    ends_on_the_stream_of_the_finish();
    ends_on_its_own_stream();
    ends_apart();
    return check_finish("order_test");
}
