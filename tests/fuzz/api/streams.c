/* Steps: streams, events and memory by themselves. */
#include <string.h>

#include "tests/fuzz/api/world.h"

static void count_up(void *argument)
{
    ++*(uint32_t *)argument; /* the stream runs one function at a time */
}

/* Functions in a stream's order, an event behind them, and what events and stream say then. */
static void submit(struct world *world, int r, int stream)
{
    const struct rank *rank = &world->ranks[r];
    const trib_stream on = world_stream(world, r, stream);
    uint32_t *count = world_keep(world, sizeof *count);
    const uint32_t n = 1 + bytes_below(world->in, 8);
    trib_event event = NULL, other = NULL;
    float ms = -1;
    int32_t done = -1;
    MUST(trib_event_create(&event, rank->device));
    MUST(trib_event_create(&other, rank->device));
    (void)STATUS(trib_event_elapsed(&ms, rank->device, event, other)); /* not recorded */
    MUST(trib_event_query(&done, rank->device, other));
    FUZZ_CHECK(done == 1);
    MUST(trib_event_record(rank->device, event, on));
    for (uint32_t i = 0; i < n; i++)
        MUST(trib_stream_submit(rank->device, count_up, count, on));
    MUST(trib_event_record(rank->device, other, on));
    MUST(trib_stream_query(&done, rank->device, on));
    FUZZ_CHECK(done == 0 || done == 1);
    if (!world->uneven) {
        MUST(trib_event_wait(rank->device, other));
        FUZZ_CHECK(*count == n);
        MUST(trib_event_elapsed(&ms, rank->device, event, other));
        FUZZ_CHECK(ms >= 0);
    }
    MUST(trib_event_destroy(rank->device, event));
    MUST(trib_event_destroy(rank->device, other));
}

/* Memory comes and goes; a copy moves it; a second free is refused. */
static void memory(struct world *world, int r, int stream)
{
    const struct rank *rank = &world->ranks[r];
    trib_device *device = rank->device;
    const size_t bytes = bytes_u16(world->in) % 3000;
    const trib_stream on = world_stream(world, r, stream);
    void *block = NULL;
    MUST(trib_device_alloc(&block, device, bytes));
    FUZZ_CHECK(block != NULL && (uintptr_t)block % 256 == 0);
    if (bytes > 1)
        FUZZ_CHECK(STATUS(trib_device_free(device, (char *)block + 1)) ==
                   TRIB_ERR_INVALID_ARGUMENT);
    if (!world->uneven) {
        MUST(trib_device_copy(device, block, rank->memory, bytes, on));
        MUST(trib_stream_wait(device, on));
        FUZZ_CHECK(bytes == 0 || memcmp(block, rank->memory, bytes) == 0);
    }
    MUST(trib_device_free(device, block));
    FUZZ_CHECK(STATUS(trib_device_free(device, block)) == TRIB_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK(STATUS(trib_device_copy(device, NULL, rank->memory, 1, on)) ==
               TRIB_ERR_INVALID_BUFFER);
    block = device;
    FUZZ_CHECK(STATUS(trib_device_alloc(&block, device, SIZE_MAX - bytes)) ==
               TRIB_ERR_OUT_OF_MEMORY);
    FUZZ_CHECK(block == NULL);
}

/* Handles that are none, or of another device, are refused. */
static void strangers(struct world *world, int r)
{
    const struct rank *rank = &world->ranks[r];
    const struct rank *next = &world->ranks[(r + 1) % world->size];
    int32_t done = -1;
    trib_stream stranger = rank->memory;
    trib_device *device = rank->device;
    if (next != rank && next->streams[1] != NULL && bytes_rare(world->in, 2))
        stranger = next->streams[1];
    FUZZ_CHECK(STATUS(trib_stream_wait(device, stranger)) == TRIB_ERR_INVALID_STREAM);
    FUZZ_CHECK(STATUS(trib_stream_query(&done, device, stranger)) == TRIB_ERR_INVALID_STREAM);
    FUZZ_CHECK(done == 0);
    FUZZ_CHECK(STATUS(trib_stream_destroy(device, stranger)) == TRIB_ERR_INVALID_STREAM);
    FUZZ_CHECK(STATUS(trib_event_record(device, rank->event, stranger)) == TRIB_ERR_INVALID_STREAM);
    FUZZ_CHECK(fuzz_is_mistake(STATUS(trib_event_wait(device, rank->memory))));
    FUZZ_CHECK(fuzz_is_mistake(STATUS(trib_event_destroy(device, rank->memory))));
    FUZZ_CHECK(fuzz_is_mistake(STATUS(trib_stream_submit(device, NULL, NULL, NULL))));
    FUZZ_CHECK(fuzz_is_mistake(STATUS(trib_device_get(&device, "cuda", 0))));
    FUZZ_CHECK(device == NULL);
}

void step_streams(struct world *world)
{
    const int r = (int)bytes_below(world->in, (uint32_t)world->size);
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    switch (bytes_below(world->in, 4)) {
    case 0:
        submit(world, r, stream);
        break;
    case 1:
        memory(world, r, stream);
        break;
    case 2:
        strangers(world, r);
        break;
    default:
        (void)world_stream(world, r, stream);
    }
}
