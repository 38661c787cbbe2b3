/* The ranks that a program of calls drives, and what their memory should hold. */
#include "tests/fuzz/api/world.h"

#include <string.h>

enum { HASTY_MS = 20, PATIENT_MS = 8000 };

struct kept {
    struct kept *next;
    _Alignas(16) unsigned char data[];
};

/* ------------------------------------------------------------------------------------- beginning */

trib_options world_options(const struct world *world)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "host";
    options.flags = world->flags;
    options.timeout_ms = options.close_timeout_ms = world->hasty ? HASTY_MS : PATIENT_MS;
    if (world->hasty)
        options.call_timeout_ms = HASTY_MS;
    return options;
}

static void open_rank(struct world *world, int r)
{
    struct rank *rank = &world->ranks[r];
    void *memory = NULL;
    rank->ordinal = r;
    MUST(trib_device_get(&rank->device, "host", r));
    MUST(trib_device_alloc(&memory, rank->device, ARENA));
    rank->memory = memory;
    rank->shadow = malloc(ARENA);
    rank->touched = calloc(ARENA, sizeof *rank->touched);
    FUZZ_CHECK(rank->shadow != NULL && rank->touched != NULL);
    for (size_t i = 0; i < ARENA; i++)
        rank->memory[i] = rank->shadow[i] = (uint8_t)(i * 7 + (size_t)r);
    MUST(trib_event_create(&rank->event, rank->device));
}

struct opening {
    struct world *world;
    trib_id id;
    trib_options options;
};

static void join(int r, void *argument)
{
    struct opening *opening = argument;
    struct rank *rank = &opening->world->ranks[r];
    MUST(trib_comm_create(&rank->comm, &opening->id, r, opening->world->size, rank->ordinal,
                          &opening->options));
}

void world_open(struct world *world, struct bytes *in)
{
    memset(world, 0, sizeof *world);
    world->in = in;
    MUST(trib_debug_set(0));
    world->size = 1 + (int)((bytes_u8(in) + 1) % FUZZ_RANKS);
    const uint32_t how = bytes_below(in, 4);
    world->flags = bytes_rare(in, 4) ? bytes_below(in, FUZZ_OPTION_FLAGS + 1) : 0;
    if ((world->flags & TRIB_WINDOWS_UNABORTABLE) != 0)
        world->flags |= TRIB_WINDOWS;             /* which it is about */
    world->hasty = how != 3 && bytes_rare(in, 4); /* by an id all ranks must be in time */
    struct opening opening = {.world = world, .options = world_options(world)};
    for (int r = 0; r < world->size; r++)
        open_rank(world, r);
    if (how == 3) {
        MUST(trib_id_create(&opening.id, "host"));
        fuzz_ranks(world->size, join, &opening);
        MUST(trib_comm_abort_handle(&world->abort, world->ranks[0].comm));
        return;
    }
    MUST(trib_group_create(&world->group, NULL, world->size, &opening.options));
    MUST(trib_group_abort_handle(&world->abort, world->group));
    if (how == 2)
        return;
    trib_comm *comms[FUZZ_RANKS];
    MUST(trib_group_split(comms, world->group));
    world->group = NULL;
    for (int r = 0; r < world->size; r++)
        world->ranks[r].comm = comms[r];
}

/* ------------------------------------------------------------------------------------------ end */

void world_judge_end(const struct world *world, trib_status status)
{
    if (status == TRIB_OK)
        return;
    FUZZ_CHECK(!world_is_sound(world));
    FUZZ_CHECK(fuzz_is_state(status) || status == TRIB_ERR_MISMATCH);
}

static void end_communicators(struct world *world)
{
    const int first = (int)bytes_below(world->in, (uint32_t)world->size);
    if (world->uneven && world->life != WORLD_ENDED && (!world->hasty || bytes_rare(world->in, 2)))
        MUST(trib_abort_raise(world->abort, "the end of the program"));
    sparse_drop(world);
    if (world->group != NULL)
        world_judge_end(world, STATUS(trib_group_destroy(world->group)));
    for (int i = 0; i < world->size; i++) {
        struct rank *rank = &world->ranks[(first + i) % world->size];
        if (rank->comm != NULL)
            world_judge_end(world, STATUS(trib_comm_destroy(rank->comm)));
        rank->comm = NULL;
    }
    world->group = NULL;
    (void)STATUS(trib_abort_status(world->abort));
    trib_abort_release(world->abort);
}

static void close_rank(struct rank *rank)
{
    for (int i = 1; i <= STREAMS; i++)
        MUST(trib_stream_destroy(rank->device, rank->streams[i]));
    MUST(trib_event_destroy(rank->device, rank->event));
    MUST(trib_device_free(rank->device, rank->memory));
    free(rank->shadow);
    free(rank->touched);
}

void world_close(struct world *world)
{
    world_settle(world);
    const bool sound = world_is_sound(world);
    end_communicators(world);
    if (!sound)
        world->life = WORLD_ENDED; /* nothing waits for a rank any more */
    world_settle(world);
    for (int r = 0; r < FUZZ_RANKS; r++)
        if (world->ranks[r].device != NULL)
            close_rank(&world->ranks[r]);
    while (world->kept != NULL) {
        struct kept *next = world->kept->next;
        free(world->kept);
        world->kept = next;
    }
}

void world_check_freed(void)
{
    for (int ordinal = 0; ordinal < FUZZ_RANKS; ordinal++) {
        trib_memory memory = TRIB_MEMORY_INIT;
        trib_device *device = NULL;
        MUST(trib_device_get(&device, "host", ordinal));
        MUST(trib_device_memory(&memory, device));
        FUZZ_CHECK(memory.workspace_bytes == 0 && memory.sparse_bytes == 0);
        FUZZ_CHECK(memory.pinned_bytes == 0);
    }
}

/* ---------------------------------------------------------------------------------- comparison */

static void drain(const struct rank *rank)
{
    for (int i = 0; i <= STREAMS; i++)
        if (i == 0 || rank->streams[i] != NULL)
            MUST(trib_stream_wait(rank->device, rank->streams[i]));
}

static void compare(const struct rank *rank, bool all)
{
    for (size_t i = 0; i < ARENA; i++)
        if ((all || !rank->touched[i]) && rank->memory[i] != rank->shadow[i])
            FUZZ_FAIL("byte %zu of device %d is 0x%02x and should be 0x%02x%s", i, rank->ordinal,
                      rank->memory[i], rank->shadow[i],
                      rank->touched[i] ? "" : ", which no call may write");
}

/* Does any rank's communicator say that it has ended? */
static bool says_ended(const struct world *world)
{
    bool failed = false;
    if (world->group != NULL)
        return STATUS(trib_group_status(world->group)) != TRIB_OK;
    for (int r = 0; r < world->size; r++)
        if (world->ranks[r].comm != NULL && !world->ranks[r].closed)
            failed = STATUS(trib_comm_status(world->ranks[r].comm)) != TRIB_OK || failed;
    return failed;
}

void world_settle(struct world *world)
{
    if (world->uneven && world->life != WORLD_ENDED)
        return;
    for (int r = 0; r < FUZZ_RANKS; r++)
        if (world->ranks[r].device != NULL)
            drain(&world->ranks[r]);
    const bool failed = says_ended(world);
    FUZZ_CHECK(!failed || !world_is_sound(world));
    if (world->torn && !failed && world->life == WORLD_LIVE)
        FUZZ_FAIL("ranks made different calls, and no status says so");
    if (failed)
        world->life = WORLD_ENDED;
    for (int r = 0; r < FUZZ_RANKS; r++) {
        struct rank *rank = &world->ranks[r];
        if (rank->device == NULL)
            continue;
        compare(rank, world->life == WORLD_LIVE);
        memcpy(rank->shadow, rank->memory, ARENA);
        memset(rank->touched, 0, ARENA * sizeof *rank->touched);
    }
}

/* ---------------------------------------------------------------------------- streams and memory */

trib_stream world_stream(struct world *world, int r, int stream)
{
    struct rank *rank = &world->ranks[r];
    if (stream != 0 && rank->streams[stream] == NULL)
        MUST(trib_stream_create(&rank->streams[stream], rank->device));
    if (stream != rank->last) {
        MUST(trib_event_record(rank->device, rank->event, rank->streams[rank->last]));
        MUST(trib_stream_wait_event(rank->device, rank->event, rank->streams[stream]));
    }
    rank->last = stream;
    return rank->streams[stream];
}

void *world_keep(struct world *world, size_t bytes)
{
    struct kept *kept = calloc(1, sizeof *kept + bytes);
    FUZZ_CHECK(kept != NULL);
    kept->next = world->kept;
    world->kept = kept;
    return kept->data;
}

void world_result(struct world *world, int r, size_t at, const void *data, size_t bytes)
{
    struct rank *rank = &world->ranks[r];
    FUZZ_CHECK(at <= ARENA && bytes <= ARENA - at);
    if (data != NULL && bytes != 0)
        memcpy(rank->shadow + at, data, bytes);
    for (size_t i = 0; i < bytes; i++)
        rank->touched[at + i] = true;
}

void world_adopt(struct world *world, int r, size_t at, size_t bytes)
{
    const struct rank *rank = &world->ranks[r];
    memcpy(rank->shadow + at, rank->memory + at, bytes);
}

void world_fill(struct world *world, int r, size_t at, const void *data, size_t bytes,
                trib_stream stream)
{
    const struct rank *rank = &world->ranks[r];
    void *copy = world_keep(world, bytes);
    memcpy(copy, data, bytes);
    MUST(trib_device_copy(rank->device, rank->memory + at, copy, bytes, stream));
    world_result(world, r, at, data, bytes);
}

/* --------------------------------------------------------------------------------- calls of ranks */

void world_each(struct world *world, bool waits, void (*body)(int rank, void *argument),
                void *argument)
{
    if (waits || (world->flags & TRIB_MATCH) != 0) {
        fuzz_ranks(world->size, body, argument);
        return;
    }
    const int first = (int)bytes_below(world->in, (uint32_t)world->size);
    for (int i = 0; i < world->size; i++)
        body((first + i) % world->size, argument);
}

/* With TRIB_MATCH a call waits for the others, and says so if one does not come or differs. */
static bool judge_match(struct world *world, const struct verdicts *verdicts, int r, bool all_valid)
{
    const trib_status status = verdicts->status[r];
    if (!verdicts->valid[r] || (world->flags & TRIB_MATCH) == 0)
        return false;
    if (verdicts->differs)
        return status == TRIB_ERR_MISMATCH;
    return !all_valid && (fuzz_is_state(status) || status == TRIB_ERR_MISMATCH);
}

static void trace(const struct world *world, const struct verdicts *verdicts)
{
    fuzz_trace("  life %d%s%s%s:", world->life, world->uneven ? ", uneven" : "",
               world->torn ? ", torn" : "", verdicts->differs ? ", differs" : "");
    for (int r = 0; r < world->size; r++)
        fuzz_trace(" %s %s", verdicts->valid[r] ? "valid" : "invalid",
                   trib_status_name(verdicts->status[r]));
    fuzz_trace("\n");
}

static void judge_rank(struct world *world, const struct verdicts *verdicts, int r, bool all_valid)
{
    const trib_status status = verdicts->status[r];
    const bool late = world->hasty && status == TRIB_ERR_TIMEOUT;
    const bool over = fuzz_is_state(status) || (!verdicts->valid[r] && fuzz_is_mistake(status));
    const bool expected = verdicts->valid[r] ? status == TRIB_OK : fuzz_is_mistake(status);
    bool good = expected;
    if (world->life == WORLD_ENDED)
        good = over;
    else if (!world_is_sound(world))
        good = expected || over || judge_match(world, verdicts, r, all_valid);
    else if ((world->flags & TRIB_MATCH) != 0 && !verdicts->unmatched &&
             (verdicts->differs || !all_valid))
        good = judge_match(world, verdicts, r, all_valid) || (!verdicts->valid[r] && expected);
    else if (verdicts->differs) /* the streams of earlier ranks may have compared already */
        good = expected || over;
    if (!good && !late)
        FUZZ_FAIL("rank %d: %s for a call that is %s in a world that is %s: %s", r,
                  trib_status_name(status), verdicts->valid[r] ? "valid" : "invalid",
                  world->life == WORLD_LIVE     ? "live"
                  : world->life == WORLD_ENDING ? "ending"
                                                : "ended",
                  trib_last_detail());
}

bool world_judge(struct world *world, const struct verdicts *verdicts)
{
    int valid = 0, queued = 0;
    bool state = false;
    trace(world, verdicts);
    for (int r = 0; r < world->size; r++)
        valid += verdicts->valid[r];
    for (int r = 0; r < world->size; r++) {
        judge_rank(world, verdicts, r, valid == world->size);
        queued += verdicts->status[r] == TRIB_OK;
        state = state || fuzz_is_state(verdicts->status[r]);
    }
    if (queued != 0 && queued != world->size)
        world->uneven = true;
    if (queued == world->size && verdicts->differs)
        world->torn = true;
    if (state && world->life == WORLD_LIVE)
        world->life = WORLD_ENDED; /* the ranks share their end */
    return queued == world->size && !verdicts->differs;
}

bool world_judge_handshake(struct world *world, const struct verdicts *verdicts)
{
    int good = 0, valid = 0;
    bool state = false;
    trace(world, verdicts);
    for (int r = 0; r < world->size; r++) {
        good += verdicts->status[r] == TRIB_OK;
        valid += verdicts->valid[r];
        state = state || fuzz_is_state(verdicts->status[r]);
    }
    const bool whole = valid == world->size && !verdicts->differs;
    FUZZ_CHECK(good == 0 || (whole && world->life != WORLD_ENDED));
    for (int r = 0; r < world->size && world->life == WORLD_LIVE && !world->hasty; r++) {
        const trib_status status = verdicts->status[r];
        const trib_status others = whole ? TRIB_OK : TRIB_ERR_MISMATCH;
        if (verdicts->valid[r] ? status != others : !fuzz_is_mistake(status))
            FUZZ_FAIL("rank %d: %s, its arguments are %s, and %d of %d ranks' are valid%s: %s", r,
                      trib_status_name(status), verdicts->valid[r] ? "valid" : "invalid", valid,
                      world->size, verdicts->differs ? ", and differ" : "", trib_last_detail());
    }
    if (state && world->life == WORLD_LIVE)
        world->life = WORLD_ENDED;
    return good == world->size;
}

bool world_can_wait(struct world *world)
{
    if (world->torn)
        world_settle(world);
    return world->group == NULL && !world->left && (!world->uneven || world->life == WORLD_ENDED);
}
