/* Steps: questions, which any object answers. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/api/world.h"

static void ask_rank(const struct world *world, int r)
{
    const struct rank *rank = &world->ranks[r];
    trib_counters counters = TRIB_COUNTERS_INIT;
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    if (rank->comm == NULL)
        return;
    FUZZ_CHECK(trib_comm_rank(rank->comm) == r && trib_comm_size(rank->comm) == world->size);
    FUZZ_CHECK(trib_comm_device(rank->comm) == rank->ordinal);
    const trib_status status = STATUS(trib_comm_status(rank->comm));
    FUZZ_CHECK(status == TRIB_OK || !world_is_sound(world));
    FUZZ_CHECK(status != TRIB_OK || world->life != WORLD_ENDED);
    const trib_status waited =
        STATUS(trib_comm_wait(rank->comm, rank->streams[rank->last], bytes_below(world->in, 4)));
    FUZZ_CHECK(waited == TRIB_OK ? world->life != WORLD_ENDED
                                 : waited == TRIB_ERR_TIMEOUT || !world_is_sound(world));
    (void)STATUS(trib_comm_set_call_timeout(rank->comm, TRIB_NO_TIMEOUT, bytes_rare(world->in, 2)));
    MUST(trib_comm_counters(&counters, rank->comm));
    MUST(trib_comm_capabilities(&can, rank->comm));
    FUZZ_CHECK(can.max_ranks >= world->size && (can.flags & TRIB_CAN_HOST_MEMORY) != 0);
    counters.size--;
    FUZZ_CHECK(STATUS(trib_comm_counters(&counters, rank->comm)) == TRIB_ERR_INVALID_ARGUMENT);
}

/* How far the end has come: never less far than before, and a text that fits. */
static void ask_state(const struct world *world)
{
    char text[80];
    trib_comm_state state = -1, later = -1;
    const size_t room = bytes_below(world->in, sizeof text);
    memset(text, 'x', sizeof text);
    MUST(trib_abort_state(&state, room == 0 ? NULL : text, room, world->abort));
    FUZZ_CHECK(state >= TRIB_COMM_LIVE && state <= TRIB_COMM_RECLAIMED);
    FUZZ_CHECK(state == TRIB_COMM_LIVE || !world_is_sound(world));
    FUZZ_CHECK(state != TRIB_COMM_LIVE || world->life != WORLD_ENDED);
    FUZZ_CHECK(room == 0 || memchr(text, '\0', room) != NULL);
    for (size_t i = room; i < sizeof text; i++)
        FUZZ_CHECK(text[i] == 'x');
    MUST(trib_abort_state(&later, NULL, 0, world->abort));
    FUZZ_CHECK(later >= state || (state == TRIB_COMM_PARKED && later == TRIB_COMM_ABORTED));
    FUZZ_CHECK(STATUS(trib_abort_state(&later, NULL, 1, world->abort)) ==
               TRIB_ERR_INVALID_ARGUMENT);
}

static void ask_lost(const struct world *world, const trib_comm *comm)
{
    int32_t lost[FUZZ_RANKS], n = -1;
    const int32_t capacity = (int32_t)bytes_below(world->in, FUZZ_RANKS + 1);
    memset(lost, 0xff, sizeof lost);
    MUST(trib_comm_lost(&n, comm, capacity == 0 ? NULL : lost, capacity));
    FUZZ_CHECK(n >= 0 && n <= world->size && (n == 0 || !world_is_sound(world)));
    for (int32_t i = 0; i < FUZZ_RANKS; i++)
        FUZZ_CHECK(i < capacity && i < n ? lost[i] >= 0 && lost[i] < world->size : lost[i] == -1);
    FUZZ_CHECK(STATUS(trib_comm_lost(&n, comm, lost, -1)) == TRIB_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK(STATUS(trib_comm_lost(&n, comm, NULL, 1)) == TRIB_ERR_INVALID_ARGUMENT);
}

static void wait_group(const struct world *world)
{
    trib_stream streams[FUZZ_RANKS];
    for (int r = 0; r < world->size; r++)
        streams[r] = world->ranks[r].streams[world->ranks[r].last];
    const trib_status waited =
        STATUS(trib_group_wait(world->group, streams, bytes_below(world->in, 4)));
    FUZZ_CHECK(waited == TRIB_OK ? world->life != WORLD_ENDED
                                 : waited == TRIB_ERR_TIMEOUT || !world_is_sound(world));
    streams[bytes_below(world->in, (uint32_t)world->size)] = world->ranks[0].memory;
    const trib_status refused = STATUS(trib_group_wait(world->group, streams, 0));
    FUZZ_CHECK(fuzz_is_mistake(refused) || fuzz_is_state(refused) ||
               (world->flags & TRIB_UNCHECKED) != 0);
}

/* What is in a file. The caller frees it. */
static char *contents(const char *path)
{
    FILE *file = fopen(path, "r");
    FUZZ_CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(file);
    char *text = calloc(1, size + 1);
    FUZZ_CHECK(text != NULL && fseek(file, 0, SEEK_SET) == 0);
    FUZZ_CHECK(fread(text, 1, size, file) == size);
    (void)fclose(file);
    return text;
}

/* Every recorder, in a file that is whole, with the blocks of memory if the debug switch is on; and
 * no file where none can be. */
static void dump(const struct world *world)
{
    char path[64];
    (void)snprintf(path, sizeof path, "fuzz_api-%d.json", (int)getpid());
    MUST(trib_dump(path));
    char *text = contents(path);
    (void)remove(path);
    const size_t size = strlen(text);
    FUZZ_CHECK(size > 2 && strcmp(text + size - 2, "}\n") == 0);
    const bool recorded = strstr(text, "\"memory\": ") != NULL;
    FUZZ_CHECK((strstr(text, "\"blocks\": ") != NULL) == (recorded && world->debug));
    free(text);
    FUZZ_CHECK(trib_dump("no such folder/dump.json") == TRIB_ERR_SYSTEM);
    FUZZ_CHECK(STATUS(trib_dump(NULL)) == TRIB_ERR_INVALID_ARGUMENT);
}

/* About the end of a communicator, and what is left when it comes. */
static void ask_end(const struct world *world)
{
    ask_state(world);
    if (world->group != NULL)
        wait_group(world);
    for (int r = 0; r < world->size; r++) {
        trib_comm *comm = world->ranks[r].comm;
        if (comm == NULL)
            continue;
        ask_lost(world, comm);
        FUZZ_CHECK(STATUS(trib_comm_set_call_timeout(comm, 0, 2)) == TRIB_ERR_INVALID_ARGUMENT);
    }
    if (bytes_rare(world->in, 8))
        dump(world);
}

/* Any number but 0 and 1 is refused, and changes nothing (dump). */
static void switch_debug(struct world *world, uint8_t odd)
{
    world->debug = odd % 4 == 1;
    MUST(trib_debug_set(world->debug));
    FUZZ_CHECK(STATUS(trib_debug_set(2 + odd)) == TRIB_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK(STATUS(trib_debug_set(-1 - odd)) == TRIB_ERR_INVALID_ARGUMENT);
}

static void check_memory(const trib_memory *memory)
{
    FUZZ_CHECK(memory->size == sizeof *memory && memory->reserved == 0);
    FUZZ_CHECK(memory->workspace_bytes <= memory->workspace_peak_bytes);
    FUZZ_CHECK(memory->sparse_bytes <= memory->sparse_peak_bytes);
    FUZZ_CHECK(memory->pinned_bytes <= memory->pinned_peak_bytes);
    FUZZ_CHECK(memory->peer_bytes <= memory->peer_peak_bytes);
}

/* A communicator's memory is of its device, where the peaks stay for ever. */
static void ask_memory(const struct world *world, const struct rank *rank)
{
    trib_memory own = TRIB_MEMORY_INIT, all = TRIB_MEMORY_INIT;
    if (rank->comm != NULL)
        MUST(trib_comm_memory(&own, rank->comm));
    MUST(trib_device_memory(&all, rank->device));
    check_memory(&own);
    check_memory(&all);
    FUZZ_CHECK(own.workspace_peak_bytes <= all.workspace_peak_bytes);
    FUZZ_CHECK(own.sparse_peak_bytes <= all.sparse_peak_bytes);
    FUZZ_CHECK(own.pinned_peak_bytes <= all.pinned_peak_bytes);
    if (rank->sparse != NULL && world_sparse_residual(world))
        FUZZ_CHECK(own.sparse_bytes >= world->sparse.count * sizeof(float) && own.pinned_bytes > 0);
    own.size--;
    const trib_memory before = own;
    if (rank->comm != NULL)
        FUZZ_CHECK(STATUS(trib_comm_memory(&own, rank->comm)) == TRIB_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK(STATUS(trib_device_memory(&own, rank->device)) == TRIB_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK(memcmp(&own, &before, sizeof own) == 0);
}

static void ask_sparse(const struct rank *rank)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    if (rank->sparse == NULL)
        return;
    (void)STATUS(trib_sparse_status(rank->sparse));
    MUST(trib_sparse_statistics_get(&statistics, rank->sparse));
    FUZZ_CHECK(statistics.calls_applied + statistics.calls_non_finite <= statistics.calls);
    FUZZ_CHECK(statistics.applied <= statistics.selected || statistics.calls_applied == 0);
    FUZZ_CHECK(trib_sparse_k(rank->sparse) <= statistics.count);
    FUZZ_CHECK(trib_sparse_outcome(rank->sparse) != NULL);
}

void step_queries(struct world *world)
{
    uint32_t version = 0;
    int32_t devices = 0;
    const uint8_t odd = bytes_u8(world->in);
    MUST(trib_backend_version(&version, "host"));
    MUST(trib_backend_devices(&devices, "host"));
    FUZZ_CHECK(version == trib_version() && devices == 64);
    FUZZ_CHECK(trib_status_name(odd) != NULL && trib_status_message(odd) != NULL);
    FUZZ_CHECK(trib_dtype_name(odd) != NULL && trib_op_name(odd) != NULL);
    FUZZ_CHECK((trib_sparse_algorithm_name(odd) != NULL) == (odd < trib_sparse_algorithm_count()));
    FUZZ_CHECK((trib_backend_name(odd) != NULL) == (odd < trib_backend_count()));
    FUZZ_CHECK(world->life != WORLD_ENDED || trib_abort_raised(world->abort) == 1);
    if (bytes_rare(world->in, 4))
        MUST(trib_abort_defer(world->abort, bytes_u8(world->in)));
    if (world->group != NULL) {
        FUZZ_CHECK(trib_group_size(world->group) == world->size);
        FUZZ_CHECK(trib_group_device(world->group, world->size) == -1);
    }
    switch_debug(world, odd);
    for (int r = 0; r < world->size; r++) {
        ask_rank(world, r);
        ask_sparse(&world->ranks[r]);
        ask_memory(world, &world->ranks[r]);
    }
    if (bytes_rare(world->in, 8))
        (void)STATUS(trib_quiesce(0));
    if (bytes_rare(world->in, 4))
        ask_end(world);
}
