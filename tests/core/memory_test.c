/* What the library says of its own memory: the bytes of each rank and device, exactly; that nothing
 * is left; the lines of the log; the blocks of a dump. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/core/communicator.h"
#include "kernels/sparse.h"
#include "tests/team.h"

enum {
    GRANULE = 65536, /* a workspace is a multiple of it */
    SCALARS = 256,
    N = 40000, /* floats that need more than two granules, */
    RESIDUAL = 160000,
    WORKSPACE_CELL = sizeof(struct tri_workspace_pinned),
    SPARSE_CELL = sizeof(struct tri_counters),
    BOUND_MS = 20000,
    TEXT = 1 << 18
};

static float data[2][N];

static trib_memory of_comm(trib_comm *comm)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, comm));
    return memory;
}

static trib_memory of_device(const trib_device *device)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_device_memory(&memory, device));
    return memory;
}

#define HOLDS(memory, workspace, sparse, pinned)                                                   \
    holds(&(memory), (uint64_t)(workspace), (uint64_t)(sparse), (uint64_t)(pinned), __LINE__)

static void holds(const trib_memory *memory, uint64_t workspace, uint64_t sparse, uint64_t pinned,
                  int line)
{
    CHECK_MSG(memory->workspace_bytes == workspace && memory->sparse_bytes == sparse &&
                  memory->pinned_bytes == pinned,
              "line %d: %" PRIu64 ", %" PRIu64 " and %" PRIu64 " bytes", line,
              memory->workspace_bytes, memory->sparse_bytes, memory->pinned_bytes);
}

#define PEAKS(memory, workspace, sparse, pinned)                                                   \
    peaks(&(memory), (uint64_t)(workspace), (uint64_t)(sparse), (uint64_t)(pinned), __LINE__)

static void peaks(const trib_memory *memory, uint64_t workspace, uint64_t sparse, uint64_t pinned,
                  int line)
{
    CHECK_MSG(memory->workspace_peak_bytes == workspace && memory->sparse_peak_bytes == sparse &&
                  memory->pinned_peak_bytes == pinned,
              "line %d: at most %" PRIu64 ", %" PRIu64 " and %" PRIu64 " bytes", line,
              memory->workspace_peak_bytes, memory->sparse_peak_bytes, memory->pinned_peak_bytes);
}

/* On host, other large lists take no memory. */
static trib_status list(struct team *team, int rank, size_t count)
{
    const trib_tensor tensor = {data[rank], count, TRIB_F32, 0};
    return trib_weighted_average(team->comms[rank], &tensor, 1, 1, NULL, NULL, team->streams[rank]);
}

static trib_sparse_options sparse_options(uint64_t k)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_USE_K | TRIB_SPARSE_ENTRIES; /* all of its memory is its own */
    options.k = k;
    return options;
}

static uint64_t sparse_bytes(const trib_comm *comm, uint64_t k)
{
    const trib_sparse_options options = sparse_options(k);
    uint64_t bytes = 0;
    CHECK_OK(trib_sparse_bytes(&bytes, comm, N, TRIB_F32, &options));
    return bytes;
}

/* -------------------------------------------------------------------------------------- bytes */

/* The first block is too small for the second list and stays; a third list fits. */
static void lists(struct team *team)
{
    const uint64_t second =
        ((uint64_t)SCALARS + N * sizeof(float) + GRANULE - 1) / GRANULE * GRANULE;
    trib_counters counters = TRIB_COUNTERS_INIT;
    for (int step = 0; step < 3; step++) {
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(list(team, rank, step == 0 ? 10 : N));
        CHECK(team_wait(team, 0, BOUND_MS) && team_wait(team, 1, BOUND_MS));
        for (int rank = 0; rank < 2; rank++) {
            const uint64_t bytes = step == 0 ? GRANULE : GRANULE + second;
            const trib_memory memory = of_comm(team->comms[rank]);
            HOLDS(memory, bytes, 0, WORKSPACE_CELL);
            PEAKS(memory, bytes, 0, WORKSPACE_CELL);
            CHECK_OK(trib_comm_counters(&counters, team->comms[rank]));
            CHECK(counters.workspace_bytes == bytes);
        }
    }
}

static void workspaces(void)
{
    struct team team;
    check_begin("workspaces");
    if (team_prepare(&team, "host", 2)) {
        const trib_memory first = of_device(team.devices[0]);
        HOLDS(first, 0, 0, 0); /* before any communicator */
        PEAKS(first, 0, 0, 0);
        if (team_open(&team, NULL)) {
            const trib_memory memory = of_comm(team.comms[1]);
            HOLDS(memory, 0, 0, 0); /* before the first use */
            lists(&team);
        }
        const trib_memory before = of_device(team.devices[1]);
        CHECK(before.workspace_bytes > GRANULE && before.pinned_bytes == WORKSPACE_CELL);
        team_destroy(&team);
        const trib_memory after = of_device(team.devices[1]);
        HOLDS(after, 0, 0, 0);
        PEAKS(after, before.workspace_bytes, 0, WORKSPACE_CELL);
    }
    check_end();
}

/* While k changes, the old scratch and the new one are there. */
static void grow_state(trib_comm *comm, trib_sparse *sparse, uint64_t other)
{
    const uint64_t small = sparse_bytes(comm, 10), large = sparse_bytes(comm, 4000);
    const uint64_t rest = SCALARS + 2 * RESIDUAL; /* that no change of k replaces */
    CHECK(rest < small && small < large);
    trib_memory memory = of_comm(comm);
    HOLDS(memory, GRANULE, other + small, WORKSPACE_CELL + 2 * SPARSE_CELL);
    PEAKS(memory, GRANULE, other + small, WORKSPACE_CELL + 2 * SPARSE_CELL);
    CHECK_OK(trib_sparse_set_k(sparse, 4000));
    memory = of_comm(comm);
    HOLDS(memory, GRANULE, other + large, WORKSPACE_CELL + 2 * SPARSE_CELL);
    PEAKS(memory, GRANULE, other + small + large - rest, WORKSPACE_CELL + 2 * SPARSE_CELL);
    CHECK_OK(trib_sparse_set_k(sparse, 3)); /* keeps what it has */
    memory = of_comm(comm);
    HOLDS(memory, GRANULE, other + large, WORKSPACE_CELL + 2 * SPARSE_CELL);
}

static void with_states(int rank, int size, void *argument)
{
    struct team *team = argument;
    trib_comm *comm = team->comms[rank];
    trib_sparse *one = NULL, *two = NULL;
    trib_sparse_options options = sparse_options(100);
    (void)size;
    CHECK_OK(trib_sparse_create(&one, comm, N, TRIB_F32, &options));
    const uint64_t other = sparse_bytes(comm, 100);
    trib_memory memory = of_comm(comm);
    HOLDS(memory, GRANULE, other, WORKSPACE_CELL + SPARSE_CELL);
    options.k = 10;
    CHECK_OK(trib_sparse_create(&two, comm, N, TRIB_F32, &options));
    grow_state(comm, two, other);
    const trib_memory most = of_comm(comm);
    CHECK_OK(trib_sparse_destroy(two));
    memory = of_comm(comm);
    HOLDS(memory, GRANULE, other, WORKSPACE_CELL + SPARSE_CELL);
    CHECK_OK(trib_sparse_destroy(one));
    memory = of_comm(comm);
    HOLDS(memory, GRANULE, 0, WORKSPACE_CELL);
    PEAKS(memory, GRANULE, most.sparse_peak_bytes, WORKSPACE_CELL + 2 * SPARSE_CELL);
    /* A state that is refused leaves nothing. */
    options.density = 2;
    options.flags = 0;
    CHECK_STATUS(trib_sparse_create(&one, comm, N, TRIB_F32, &options), TRIB_ERR_INVALID_ARGUMENT);
    memory = of_comm(comm);
    HOLDS(memory, GRANULE, 0, WORKSPACE_CELL);
}

static void states(void)
{
    struct team team;
    check_begin("sparse states");
    if (team_create(&team, "host", 2, NULL))
        check_ranks(2, with_states, &team);
    team_destroy(&team);
    const trib_memory memory = of_device(team.devices[0]);
    HOLDS(memory, 0, 0, 0);
    check_end();
}

/* Memory that queued work still uses counts on its device, although its communicator is gone. */
static void set_aside(void)
{
    struct team team, other;
    _Atomic bool released = false;
    trib_abort *handle = NULL;
    check_begin("two communicators of one device, and a workspace that outlives its own");
    if (team_create(&team, "host", 2, NULL) && team_create(&other, "host", 2, NULL)) {
        CHECK_OK(list(&other, 0, 10));
        CHECK_OK(list(&other, 1, 10));
        CHECK(team_wait(&other, 0, BOUND_MS));
        CHECK_OK(trib_stream_submit(team.devices[0], team_hold, &released, team.streams[0]));
        CHECK_OK(list(&team, 0, 10));
        trib_memory memory = of_device(team.devices[0]);
        HOLDS(memory, 2 * GRANULE, 0, 2 * WORKSPACE_CELL);
        memory = of_comm(team.comms[0]);
        HOLDS(memory, GRANULE, 0, WORKSPACE_CELL);
        memory = of_comm(team.comms[1]);
        HOLDS(memory, 0, 0, 0);
        if (CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0])))
            CHECK_OK(trib_abort_raise(handle, "enough"));
        trib_abort_release(handle);
        team_close(&team);
        team_close(&other);
        memory = of_device(team.devices[0]);
        HOLDS(memory, GRANULE, 0, WORKSPACE_CELL);
        atomic_store(&released, true);
        CHECK_OK(trib_quiesce(BOUND_MS));
        memory = of_device(team.devices[0]);
        HOLDS(memory, 0, 0, 0);
    }
    atomic_store(&released, true);
    team_destroy(&other);
    team_destroy(&team);
    check_end();
}

static void refused(void)
{
    struct team team;
    check_begin("what is refused");
    if (team_create(&team, "host", 2, NULL)) {
        trib_memory memory = TRIB_MEMORY_INIT;
        memory.size--;
        CHECK_STATUS(trib_comm_memory(&memory, team.comms[0]), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("trib_comm_memory: out->size is ");
        CHECK_STATUS(trib_device_memory(&memory, team.devices[0]), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("trib_device_memory: out->size is ");
        memory.size++;
        CHECK_STATUS(trib_comm_memory(&memory, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_comm_memory(NULL, team.comms[0]), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_device_memory(&memory, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_device_memory(NULL, team.devices[0]), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_debug_set(2), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_debug_set(-1), TRIB_ERR_INVALID_ARGUMENT);
    }
    team_destroy(&team);
    check_end();
}

/* ---------------------------------------------------------------------------------------- log */

static char text[TEXT];

/* trib_log_set keeps calls apart. */
static void keep(void *context, int32_t level, const char *line)
{
    size_t *used = context;
    CHECK(level == TRIB_LOG_INFO);
    *used += (size_t)snprintf(text + *used, sizeof text - *used, "%s\n", line);
}

/* How many lines begin with `words`. */
static int lines(const char *words)
{
    int n = 0;
    for (const char *at = text; at != NULL && *at != '\0';) {
        n += strncmp(at, words, strlen(words)) == 0;
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    return n;
}

/* Each line "allocated ..." comes once, and later the same line with "freed". */
static void each_is_freed(void)
{
    char line[512];
    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, "allocated ", 10) != 0)
            continue;
        (void)snprintf(line, sizeof line, "\nfreed %.*s\n", (int)strcspn(at + 10, "\n"), at + 10);
        const char *freed = strstr(at, line);
        CHECK_MSG(freed != NULL, "never:%s", line);
        CHECK_MSG(freed == NULL || strstr(freed + 1, line) == NULL, "twice:%s", line);
    }
}

static void one_state(int rank, int size, void *argument)
{
    struct team *team = argument;
    trib_sparse *sparse = NULL;
    const trib_sparse_options options = sparse_options(10);
    (void)size;
    CHECK_OK(trib_sparse_create(&sparse, team->comms[rank], N, TRIB_F32, &options));
    CHECK_OK(trib_sparse_destroy(sparse));
}

static void has(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void has(const char *format, ...)
{
    char words[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    CHECK_MSG(strstr(text, words) != NULL, "no \"%s\" in:\n%s", words, text);
}

static void where_things_are(const struct team *team)
{
    char host[256] = "";
    CHECK(gethostname(host, sizeof host - 1) == 0);
    for (int rank = 0; rank < 2; rank++) {
        const uint64_t identity = team->comms[rank]->identity;
        const uint64_t bytes = sparse_bytes(team->comms[rank], 10);
        has("communicator %016" PRIx64 ": rank %d of 2 is on device %d of host, in process %ld on "
            "%s, which has 2 of the ranks\n",
            identity, rank, rank, (long)getpid(), host);
        has("sparse state 0 of rank %d of communicator %016" PRIx64 ": 40000 elements of f32, "
            "topka, %" PRIu64 " bytes (%d of residuals, 0 of velocities, %" PRIu64
            " of scratch, 0 that other "
            "ranks read)\n",
            rank, identity, bytes, 2 * RESIDUAL, bytes - 2 * RESIDUAL - SCALARS);
        has(": the workspace of rank %d of communicator %016" PRIx64 ", device %d of host\n", rank,
            identity, rank);
        has("allocated %d bytes at 0x", GRANULE);
        has(": pinned memory for the workspace of rank %d of communicator %016" PRIx64
            ", device %d of host\n",
            rank, identity, rank);
        has("allocated %d bytes at 0x", 2 * RESIDUAL + SCALARS);
        has(": sparse state 0 of rank %d of communicator %016" PRIx64 ", device %d of host\n", rank,
            identity, rank);
        has(": pinned memory for sparse state 0 of rank %d of communicator %016" PRIx64, rank,
            identity);
    }
}

static void in_the_log(bool on)
{
    struct team team;
    size_t used = 0;
    check_begin("the log, debug switch %s", on ? "on" : "off");
    text[0] = '\0';
    CHECK_OK(trib_log_set(keep, &used, TRIB_LOG_INFO));
    if (team_create(&team, "host", 2, NULL)) {
        check_ranks(2, one_state, &team);
        const size_t before = used;
        for (int i = 0; i < 20; i++)
            for (int rank = 0; rank < 2; rank++)
                CHECK_OK(trib_allreduce(team.comms[rank], data[rank], data[rank], (size_t)i + 1,
                                        TRIB_F32, TRIB_SUM, team.streams[rank]));
        CHECK(used == before); /* no line for a call */
        if (on)
            where_things_are(&team);
    }
    team_destroy(&team);
    CHECK_OK(trib_quiesce(BOUND_MS));
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    CHECK(lines("communicator ") == (on ? 2 : 0));
    CHECK(lines("sparse state ") == (on ? 2 : 0));
    CHECK(lines("allocated ") == (on ? 10 : 0)); /* two and three of each rank */
    CHECK(lines("freed ") == (on ? 10 : 0));
    each_is_freed();
    check_end();
}

/* --------------------------------------------------------------------------------------- dump */

static void read_dump(const char *path)
{
    FILE *file = CHECK_OK(trib_dump(path)) ? fopen(path, "r") : NULL;
    text[0] = '\0';
    if (!CHECK(file != NULL))
        return;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    CHECK(remove(path) == 0);
}

static void in_a_dump(void)
{
    struct team team;
    char folder[] = "/tmp/tributary-memory-XXXXXX", path[128];
    check_begin("a dump, debug switch off and on");
    if (mkdtemp(folder) != NULL && team_create(&team, "host", 2, NULL)) {
        (void)snprintf(path, sizeof path, "%s/d.json", folder);
        CHECK_OK(list(&team, 0, 10));
        CHECK_OK(trib_debug_set(0));
        read_dump(path);
        has("\"memory\": {\"workspace_bytes\": 65536, \"workspace_peak_bytes\": 65536, "
            "\"sparse_bytes\": 0, \"sparse_peak_bytes\": 0, \"pinned_bytes\": 128, "
            "\"pinned_peak_bytes\": 128, \"peer_bytes\": 0, \"peer_peak_bytes\": 0}, \"peers\"");
        CHECK(strstr(text, "blocks") == NULL);
        CHECK_OK(trib_debug_set(1));
        read_dump(path);
        const struct tri_workspace *workspace = &team.comms[0]->workspace;
        has("\"peer_peak_bytes\": 0, \"blocks\": [\n    {\"purpose\": \"workspace\", "
            "\"state\": "
            "null, \"bytes\": 65536, \"address\": \"0x%" PRIxPTR "\"},\n    {\"purpose\": "
            "\"pinned\", \"state\": null, \"bytes\": 128, \"address\": \"0x%" PRIxPTR "\"}]}, ",
            (uintptr_t)workspace->blocks->data, (uintptr_t)workspace->pinned);
        has("\"pinned_peak_bytes\": 0, \"peer_bytes\": 0, \"peer_peak_bytes\": 0, \"blocks\": "
            "[]}, "); /* of rank 1 */
        CHECK_OK(list(&team, 1, 10));
    }
    team_destroy(&team);
    CHECK(rmdir(folder) == 0);
    check_end();
}

int main(void)
{
    (void)setenv("TRIBUTARY_DEBUG", "1", 1);
    workspaces();
    states();
    set_aside();
    refused();
    in_the_log(true); /* the environment's */
    CHECK_OK(trib_debug_set(0));
    in_the_log(false);
    CHECK_OK(trib_debug_set(1));
    in_the_log(true);
    in_a_dump();
    return check_finish("memory_test");
}
