/* The fake's NCCL: communicators, groups, operations that wait for each other, abort. */
#include <nccl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_windows.h"

enum { MAGIC = 0x7121b, SPLITS = 8, TASKS = 256, SUMS = 4, UNSET = NCCL_CONFIG_UNDEF_INT };

/* What a reduction multiplies a rank's f32 by. */
struct factor {
    bool given;
    float value;
    const float *on_device; /* not NULL: read when the reduction runs */
};

/* Ranks that wait inside a call until all have come. */
struct meeting {
    int came;
    long held; /* of all of them, so far */
};

/* The state that the ranks of one communicator share. Never freed: streams may point here. */
struct fake_world {
    struct fake_world *next; /* of communicators created by id */
    ncclUniqueId id;
    int size;
    int arrived;
    int graphs; /* calls in live graphs */
    ncclComm_t comms[FAKE_RANKS];
    bool connected[FAKE_RANKS]; /* has made its first call */
    bool aborted[FAKE_RANKS];
    long issued[FAKE_RANKS];
    struct {
        int arrived;
        int colors[FAKE_RANKS];
        int keys[FAKE_RANKS];
        struct fake_world *child[FAKE_RANKS]; /* at the first rank of each color */
    } splits[SPLITS];
    int split[FAKE_RANKS]; /* of each rank */
    struct part {
        const void *send;
        void *recv;
        struct factor factor;
    } parts[FAKE_RANKS]; /* of the transfer that goes on */
    struct mail {
        struct mail *next;
        size_t bytes;
        char data[];
    } *mail[FAKE_RANKS][FAKE_RANKS]; /* sent and not received: by receiver, by sender */
    struct meeting transfer, window; /* to move data; to register memory */
    size_t window_bytes;
};

struct ncclComm {
    int magic;
    struct fake_world *world; /* NULL before the bootstrap */
    int rank;
    int size;
    int device;
    int inside;    /* calls in flight */
    bool complete; /* all ranks have joined */
    bool abort;
    bool ending;
    bool ended;             /* aborted or destroyed */
    int process;            /* in which it is */
    uint64_t proxy_ends_ns; /* 0: its connections are open */
    int sums[SUMS];         /* live pre-multiplied ops: their type + 1 */
    struct factor factors[SUMS];
    int ends;         /* calls that end it */
    const char *name; /* the caller's, which NCCL may read as long as the communicator lives */
    struct fake_config config;
};

static struct fake_world *worlds;
static int communicators, freed_early;
static int processes[FAKE_RANKS]; /* of each rank of what is created from now on */
static bool graph;
static int waiting_for_graphs; /* threads */
static unsigned int ids;
static struct fake_factor last_factor;
static struct fake_config last_config;
static int version; /* guarded by fake_lock; 0: that of the header */

/* That NCCL says it has. The lock is held. */
static int version_now(void)
{
    return version == 0 ? NCCL_VERSION_CODE : version;
}

int fake_communicators(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = communicators;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

int fake_freed_early(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = freed_early;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

void fake_process(int rank, int process)
{
    pthread_mutex_lock(&fake_lock);
    processes[rank] = process;
    pthread_mutex_unlock(&fake_lock);
}

void fake_keep_graph(bool alive)
{
    pthread_mutex_lock(&fake_lock);
    graph = alive;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}

int fake_waiting_for_graphs(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = waiting_for_graphs;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

bool fake_done(const struct fake_world *world, int rank, long sequence)
{
    for (int other = 0; other < world->size; other++)
        if (world->issued[other] < sequence && !world->aborted[rank])
            return false;
    return true;
}

/* ------------------------------------------------------------------------ the end of a group */

enum kind { JOIN, OPERATE, PASS, FINALIZE, ABORT, DESTROY };
struct task {
    enum kind kind;
    ncclComm_t comm;
    cudaStream_t stream;
    ncclUniqueId id;
};
static _Thread_local struct task tasks[TASKS];
static _Thread_local int ntasks, depth;
static void receive_pending(void);

static void check(ncclComm_t comm)
{
    if (comm == NULL || comm->magic != MAGIC)
        fake_die("a communicator is used that has been freed");
}

static struct fake_world *world_of(const ncclUniqueId *id, int size)
{
    struct fake_world *world = worlds;
    while (world != NULL && memcmp(&world->id, id, sizeof *id) != 0)
        world = world->next;
    if (world != NULL)
        return world;
    world = calloc(1, sizeof *world);
    world->id = *id;
    world->size = size;
    world->next = worlds;
    return worlds = world;
}

static void arrive(struct fake_world *world, ncclComm_t comm)
{
    comm->world = world;
    world->comms[comm->rank] = comm;
    world->arrived++;
    pthread_cond_broadcast(&fake_changed);
}

static ncclResult_t bootstrap(ncclComm_t comm)
{
    while (comm->world->arrived < comm->size && !comm->abort)
        fake_wait();
    comm->complete = comm->world->arrived == comm->size;
    return comm->complete ? ncclSuccess : ncclInternalError;
}

int fake_comm_rank(ncclComm_t comm)
{
    check(comm);
    if (fake_current() != comm->device)
        fake_die("a call about a communicator is made while another device is current");
    return comm->rank;
}

/* Until all ranks are there, of whom the last one does this for all. False: an abort has ended that. */
static bool meet(ncclComm_t comm, struct meeting *meeting, void (*last)(const void *argument),
                 const void *argument)
{
    const long number = meeting->held;
    comm->inside++;
    if (++meeting->came == comm->world->size) {
        if (last != NULL)
            last(argument);
        meeting->came = 0;
        meeting->held++;
        pthread_cond_broadcast(&fake_changed);
    }
    while (meeting->held == number && !comm->abort)
        fake_wait();
    comm->inside--;
    meeting->came -= meeting->held == number;
    return meeting->held != number;
}

int fake_comm_meet(ncclComm_t comm, size_t bytes)
{
    const int rank = fake_comm_rank(comm);
    struct fake_world *world = comm->world;
    comm->inside++;
    fake_pass(FAKE_WINDOW);
    comm->inside--;
    if (world->window.came > 0 && world->window_bytes != bytes)
        fake_die("ranks register memory of different sizes");
    world->window_bytes = bytes;
    return meet(comm, &world->window, NULL, NULL) ? rank : -1;
}

static bool all_connected(const struct fake_world *world)
{
    for (int rank = 0; rank < world->size; rank++)
        if (!world->connected[rank])
            return false;
    return true;
}

/* On a thread of CUDA's. */
static void graph_gone(void *world)
{
    pthread_mutex_lock(&fake_lock);
    ((struct fake_world *)world)->graphs--;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}

/* The first operation waits, inside the call, for the first operation of every rank. */
static ncclResult_t operate(ncclComm_t comm, cudaStream_t stream)
{
    struct fake_world *world = comm->world;
    while (!all_connected(world) && !comm->abort)
        fake_wait();
    comm->inside--;
    if (!all_connected(world))
        return ncclInternalError;
    if (stream != NULL && fake_capturing(stream) != NULL) {
        world->graphs++;
        fake_graph_retain(fake_capturing(stream), graph_gone, world);
        return ncclSuccess;
    }
    world->issued[comm->rank]++;
    if (stream != NULL)
        fake_queue(stream, world, comm->rank, world->issued[comm->rank]);
    pthread_cond_broadcast(&fake_changed);
    return ncclSuccess;
}

/* An abort does not end this wait. */
static void await_graphs(const struct fake_world *world)
{
    waiting_for_graphs++;
    while (graph || (world != NULL && world->graphs > 0))
        fake_wait();
    waiting_for_graphs--;
}

static void finalize(ncclComm_t comm)
{
    fake_pass(FAKE_FINALIZE);
    while (!comm->abort &&
           (graph || !fake_done(comm->world, comm->rank, comm->world->issued[comm->rank])))
        fake_wait();
    if (comm->world->graphs > 0)
        await_graphs(comm->world);
    comm->proxy_ends_ns = tri_now_ns() + (comm->abort ? TRI_NCCL_POLL_MS * 1000000u : 0);
    comm->inside--;
}

static void free_one(ncclComm_t comm)
{
    if (comm->inside != 0)
        fake_die("a communicator is freed while a call is inside");
    for (int i = 0; i < SUMS; i++)
        if (comm->sums[i] != 0)
            fake_die("a communicator is freed with a reduction that was made for it");
    if (comm->name != NULL && strcmp(comm->name, comm->config.name) != 0)
        fake_die("a communicator's name is gone before the communicator");
    fake_windows_end(comm, version_now());
    comm->magic = 0;
    free(comm);
    communicators--;
}

/* Have all ranks of the process ended? */
static bool all_ended(const struct fake_world *world, int process)
{
    for (int rank = 0; rank < world->size; rank++)
        if (world->comms[rank] != NULL && world->comms[rank]->process == process &&
            !world->comms[rank]->ended)
            return false;
    return true;
}

/* All of a process at once. A proxy thread with connections must not run by then, unless its rank is the only
 * one there. */
static void free_all(struct fake_world *world, int process)
{
    int n = 0, running = 0;
    for (int rank = 0; rank < world->size; rank++) {
        const ncclComm_t comm = world->comms[rank];
        if (comm == NULL || comm->process != process)
            continue;
        n++;
        running += world->connected[rank] &&
                   (comm->proxy_ends_ns == 0 || comm->proxy_ends_ns > tri_now_ns());
        world->comms[rank] = NULL;
        free_one(comm);
    }
    freed_early += n > 1 && running > 0;
}

/* CUDA and NCCL register their exit handlers when a device is first used. */
static _Atomic bool gone;

/* Without the lock, which another thread may have held at the fork. */
static void take_down(void)
{
    atomic_store(&gone, true);
}

static void use_device(int device)
{
    static bool used[FAKE_DEVICES];
    pthread_mutex_lock(&fake_lock);
    const bool first = !used[device];
    used[device] = true;
    pthread_mutex_unlock(&fake_lock);
    if (first)
        (void)atexit(take_down);
}

/* Only the last rank of a process frees, for all of it; ranks that never joined each free themselves. */
static void reclaim(ncclComm_t comm)
{
    struct fake_world *world = comm->world;
    await_graphs(world);
    fake_pass(FAKE_RECLAIM);
    if (gone)
        fake_die("a communicator is freed after the process has taken CUDA down");
    if (world == NULL || !comm->complete) {
        if (world != NULL)
            world->comms[comm->rank] = NULL;
        free_one(comm);
        return;
    }
    comm->ended = true;
    if (all_ended(world, comm->process))
        free_all(world, comm->process);
}

/* Before any wait: the group is complete. */
static void begin(const struct task *task)
{
    check(task->comm);
    if (task->kind == JOIN)
        arrive(world_of(&task->id, task->comm->size), task->comm);
    if (task->kind == OPERATE)
        task->comm->world->connected[task->comm->rank] = true;
    if (task->kind == OPERATE || task->kind == FINALIZE)
        task->comm->inside++;
    pthread_cond_broadcast(&fake_changed);
}

static ncclResult_t finish(const struct task *task)
{
    ncclResult_t result = ncclSuccess;
    if (task->kind == JOIN)
        result = bootstrap(task->comm);
    else if (task->kind == OPERATE)
        result = operate(task->comm, task->stream);
    else if (task->kind == FINALIZE)
        finalize(task->comm);
    else if (task->kind == ABORT || task->kind == DESTROY)
        reclaim(task->comm);
    return result;
}

static ncclResult_t run(void)
{
    ncclResult_t first = ncclSuccess;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < ntasks; i++)
        begin(&tasks[i]);
    for (int i = 0; i < ntasks; i++) {
        const ncclResult_t result = finish(&tasks[i]);
        first = first == ncclSuccess ? result : first;
    }
    pthread_mutex_unlock(&fake_lock);
    ntasks = 0;
    return first;
}

static ncclResult_t add(enum kind kind, ncclComm_t comm, cudaStream_t stream,
                        const ncclUniqueId *id)
{
    if (ntasks == TASKS)
        fake_die("a group of the fake is full");
    tasks[ntasks] = (struct task){.kind = kind, .comm = comm, .stream = stream};
    if (id != NULL)
        tasks[ntasks].id = *id;
    ntasks++;
    return depth == 0 ? run() : ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0)
        fake_die("a group ends that was not open");
    if (depth == 1)
        receive_pending();
    return --depth == 0 ? run() : ncclSuccess;
}

/* ----------------------------------------------------------------------------------------- life */

static void on_device(void)
{
    if (fake_current() < 0)
        fake_die("an NCCL call would make a context on device 0, which nobody chose");
}

static ncclComm_t new_comm(int rank, int size)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->magic = MAGIC;
    comm->rank = rank;
    comm->size = size;
    comm->device = fake_current();
    comm->process = processes[rank];
    communicators++;
    return comm;
}

static void copy_name(char *out, size_t size, const char *name)
{
    if (name != NULL && strlen(name) < size)
        memcpy(out, name, strlen(name));
}

/* The lock is held. */
static void configure(ncclComm_t comm, const ncclConfig_t *config)
{
    if (config->blocking != 1 || (config->splitShare != 0 && config->splitShare != UNSET))
        fake_die("a communicator is not blocking, or shares with its parent");
    comm->config = (struct fake_config){
        .min_ctas = config->minCTAs, .max_ctas = config->maxCTAs, .cta_policy = config->CTAPolicy};
    copy_name(comm->config.network, sizeof comm->config.network, config->netName);
    copy_name(comm->config.name, sizeof comm->config.name, config->commName);
    comm->name = config->commName;
    last_config = comm->config;
}

struct fake_config fake_last_config(void)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_config last = last_config;
    pthread_mutex_unlock(&fake_lock);
    return last;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&fake_lock);
    ids++;
    memcpy(out, &ids, sizeof ids);
    pthread_mutex_unlock(&fake_lock);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    on_device();
    use_device(fake_current());
    pthread_mutex_lock(&fake_lock);
    *out = new_comm(rank, size);
    configure(*out, config);
    pthread_mutex_unlock(&fake_lock);
    return add(JOIN, *out, NULL, &id);
}

/* As NCCL documents it: a group of the others, on the devices from 0 on; and the caller's device stays. */
ncclResult_t ncclCommInitAll(ncclComm_t *out, int size, const int *devices)
{
    const int before = fake_current();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    if (devices != NULL)
        fake_die("the fake takes the first devices");
    config.blocking = 1;
    (void)ncclGetUniqueId(&id);
    (void)ncclGroupStart();
    for (int rank = 0; rank < size; rank++) {
        fake_make_current(rank);
        (void)ncclCommInitRankConfig(&out[rank], size, id, rank, &config);
    }
    const ncclResult_t result = ncclGroupEnd();
    fake_make_current(before);
    return result;
}

/* The child of the first rank of a color becomes the child of all. The lock is held. */
static ncclComm_t make_child(ncclComm_t parent, int round, int color, int key)
{
    struct fake_world *world = parent->world;
    int first = -1, rank = 0, size = 0;
    for (int other = 0; other < world->size; other++) {
        if (world->splits[round].colors[other] != color)
            continue;
        first = first < 0 ? other : first;
        size++;
        rank += world->splits[round].keys[other] < key ||
                (world->splits[round].keys[other] == key && other < parent->rank);
    }
    struct fake_world **child = &world->splits[round].child[first];
    if (*child == NULL) {
        *child = calloc(1, sizeof **child);
        (*child)->size = size;
        (*child)->next = worlds; /* so that a leak checker reaches it */
        worlds = *child;
    }
    ncclComm_t comm = new_comm(rank, size);
    arrive(*child, comm);
    return comm;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    on_device();
    *out = NULL;
    pthread_mutex_lock(&fake_lock);
    check(comm);
    comm->inside++;
    struct fake_world *world = comm->world;
    const int round = world->split[comm->rank]++;
    world->splits[round].colors[comm->rank] = color;
    world->splits[round].keys[comm->rank] = key;
    world->splits[round].arrived++;
    pthread_cond_broadcast(&fake_changed);
    while (world->splits[round].arrived < world->size && !comm->abort)
        fake_wait();
    ncclResult_t result =
        world->splits[round].arrived == world->size ? ncclSuccess : ncclInternalError;
    if (result == ncclSuccess && color != NCCL_SPLIT_NOCOLOR) {
        *out = make_child(comm, round, color, key);
        configure(*out, config);
        (void)bootstrap(*out);
    }
    comm->inside--;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* A communicator ends once. */
static ncclResult_t end(enum kind kind, ncclComm_t comm)
{
    on_device();
    pthread_mutex_lock(&fake_lock);
    check(comm);
    comm->ends++;
    if (comm->ending)
        fake_die("a communicator is aborted or destroyed twice");
    comm->ending = true;
    if (kind == ABORT) {
        comm->abort = true;
        if (comm->world != NULL)
            comm->world->aborted[comm->rank] = true;
        pthread_cond_broadcast(&fake_changed);
    }
    pthread_mutex_unlock(&fake_lock);
    return add(kind, comm, NULL, NULL);
}

int fake_ends(struct ncclComm *comm)
{
    pthread_mutex_lock(&fake_lock);
    check(comm);
    const int n = comm->ends;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static bool abort_fails;

void fake_fail_abort(bool fails)
{
    pthread_mutex_lock(&fake_lock);
    abort_fails = fails;
    pthread_mutex_unlock(&fake_lock);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const ncclResult_t result = end(ABORT, comm);
    pthread_mutex_lock(&fake_lock);
    const bool fails = abort_fails;
    pthread_mutex_unlock(&fake_lock);
    return fails ? ncclSystemError : result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end(DESTROY, comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    on_device();
    pthread_mutex_lock(&fake_lock);
    check(comm);
    comm->ends++;
    pthread_mutex_unlock(&fake_lock);
    return add(FINALIZE, comm, NULL, NULL);
}

static ncclResult_t async_errors[FAKE_RANKS];

void fake_async_error(int rank, int result)
{
    pthread_mutex_lock(&fake_lock);
    async_errors[rank] = (ncclResult_t)result;
    pthread_mutex_unlock(&fake_lock);
}

static _Atomic bool async_queries_fail;

void fake_fail_async_query(bool fails)
{
    atomic_store(&async_queries_fail, fails);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    pthread_mutex_lock(&fake_lock);
    check(comm);
    if (comm->ending)
        fake_die("a communicator is asked for errors while it is aborted");
    const bool fails = atomic_load(&async_queries_fail);
    if (!fails)
        *out = async_errors[comm->rank];
    pthread_mutex_unlock(&fake_lock);
    return fails ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *out)
{
    *out = comm->size;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *out)
{
    *out = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *out)
{
    *out = comm->rank;
    return ncclSuccess;
}

void fake_version(int code)
{
    pthread_mutex_lock(&fake_lock);
    version = code;
    pthread_mutex_unlock(&fake_lock);
}

ncclResult_t ncclGetVersion(int *out)
{
    pthread_mutex_lock(&fake_lock);
    *out = version_now();
    pthread_mutex_unlock(&fake_lock);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    (void)result;
    return "an error of the fake";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* ---------------------------------------------------------------------------------- collectives */

static long calls; /* guarded by fake_lock */

long fake_nccl_calls(void)
{
    pthread_mutex_lock(&fake_lock);
    const long n = calls;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static ncclResult_t operation(enum kind kind, ncclComm_t comm, cudaStream_t stream)
{
    on_device();
    if (fake_current() != comm->device)
        fake_die("an operation is issued while another device is current");
    if (stream != NULL && fake_stream_device(stream) != comm->device)
        fake_die("an operation is issued on another device's stream");
    pthread_mutex_lock(&fake_lock);
    const ncclResult_t error = async_errors[comm->rank];
    calls++;
    pthread_mutex_unlock(&fake_lock);
    if (error != ncclSuccess)
        return error;
    return add(kind, comm, stream, NULL);
}

static size_t size_of(ncclDataType_t dtype)
{
    static const size_t sizes[] = {[ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,
                                   [ncclUint32] = 4,  [ncclInt64] = 8,   [ncclUint64] = 8,
                                   [ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8,
                                   [ncclBfloat16] = 2};
    return sizes[dtype];
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t dtype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    int free_one = 0;
    pthread_mutex_lock(&fake_lock);
    check(comm);
    while (free_one < SUMS && comm->sums[free_one] != 0)
        free_one++;
    if (free_one == SUMS)
        fake_die("reductions are made and never destroyed");
    comm->sums[free_one] = (int)dtype + 1;
    comm->factors[free_one] =
        (struct factor){.given = true, .on_device = residence == ncclScalarDevice ? scalar : NULL};
    if (dtype == ncclFloat32)
        memcpy(&comm->factors[free_one].value, scalar, sizeof(float));
    *op = (ncclRedOp_t)((int)ncclNumOps + free_one);
    last_factor = (struct fake_factor){.type = (int)dtype};
    last_factor.on_device = residence == ncclScalarDevice ? scalar : NULL;
    memcpy(last_factor.element, scalar, size_of(dtype));
    pthread_mutex_unlock(&fake_lock);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    const int sum = (int)op - (int)ncclNumOps;
    pthread_mutex_lock(&fake_lock);
    check(comm);
    if (sum < 0 || sum >= SUMS || comm->sums[sum] == 0)
        fake_die("a reduction is destroyed that does not exist");
    comm->sums[sum] = 0;
    pthread_mutex_unlock(&fake_lock);
    return ncclSuccess;
}

struct fake_factor fake_last_factor(void)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_factor last = last_factor;
    pthread_mutex_unlock(&fake_lock);
    return last;
}

/* ----------------------------------------------------------------------------------------- data */

static bool moves; /* guarded by fake_lock */

void fake_move_data(bool on)
{
    pthread_mutex_lock(&fake_lock);
    moves = on;
    pthread_mutex_unlock(&fake_lock);
}

struct transfer {
    ncclComm_t comm;
    struct part part;
    size_t count;
    ncclDataType_t dtype;
    ncclRedOp_t op; /* ncclAvg, too, of f32 */
    int root;       /* of a broadcast or reduce; the peer of a message */
    void (*move)(const struct transfer *transfer);
};

static double element_of(const struct part *part, size_t i, ncclDataType_t dtype)
{
    const struct factor *factor = &part->factor;
    if (dtype == ncclUint8)
        return ((const uint8_t *)part->send)[i];
    if (dtype == ncclUint32)
        return ((const uint32_t *)part->send)[i];
    const double x = (double)((const float *)part->send)[i];
    return !factor->given ? x
                          : x * (double)(factor->on_device ? *factor->on_device : factor->value);
}

/* Element i, over all ranks. */
static double reduced(const struct transfer *transfer, size_t i)
{
    const struct fake_world *world = transfer->comm->world;
    double sum = 0;
    for (int rank = 0; rank < world->size; rank++) {
        const double x = element_of(&world->parts[rank], i, transfer->dtype);
        sum = transfer->op != ncclMax ? sum + x : x > sum ? x : sum;
    }
    return transfer->op == ncclAvg ? sum / world->size : sum;
}

static void set_element(void *recv, size_t i, double x, ncclDataType_t dtype)
{
    if (dtype == ncclUint8)
        ((uint8_t *)recv)[i] = (uint8_t)x;
    else if (dtype == ncclUint32)
        ((uint32_t *)recv)[i] = (uint32_t)x;
    else
        ((float *)recv)[i] = (float)x;
}

static void check_reduction(const struct transfer *transfer)
{
    const ncclDataType_t dtype = transfer->dtype;
    if ((dtype != ncclUint8 && dtype != ncclUint32 && dtype != ncclFloat32) ||
        (transfer->op != ncclSum && transfer->op != ncclMax && transfer->op != ncclAvg))
        fake_die("a reduction whose data the fake cannot move");
}

/* root -1: to all ranks */
static void reduce(const struct transfer *transfer)
{
    const struct fake_world *world = transfer->comm->world;
    check_reduction(transfer);
    for (size_t i = 0; i < transfer->count; i++) {
        const double x = reduced(transfer, i);
        for (int rank = 0; rank < world->size; rank++)
            if (transfer->root < 0 || transfer->root == rank)
                set_element(world->parts[rank].recv, i, x, transfer->dtype);
    }
}

static void reduce_scatter(const struct transfer *transfer)
{
    const struct fake_world *world = transfer->comm->world;
    check_reduction(transfer);
    for (int rank = 0; rank < world->size; rank++)
        for (size_t i = 0; i < transfer->count; i++)
            set_element(world->parts[rank].recv, i,
                        reduced(transfer, (size_t)rank * transfer->count + i), transfer->dtype);
}

static size_t bytes_of(const struct transfer *transfer)
{
    return transfer->count * size_of(transfer->dtype);
}

static void broadcast(const struct transfer *transfer)
{
    const struct fake_world *world = transfer->comm->world;
    const void *send = world->parts[transfer->root].send;
    for (int to = 0; to < world->size; to++)
        memmove(world->parts[to].recv, send, bytes_of(transfer));
}

static void gather(const struct transfer *transfer)
{
    const struct fake_world *world = transfer->comm->world;
    const size_t n = bytes_of(transfer);
    for (int from = 0; from < world->size; from++)
        for (int to = 0; to < world->size; to++)
            memmove((char *)world->parts[to].recv + (size_t)from * n, world->parts[from].send, n);
}

static void move_all(const void *transfer)
{
    ((const struct transfer *)transfer)->move(transfer);
}

/* The last rank that comes moves the data of all. */
static ncclResult_t transfer_data(const struct transfer *transfer)
{
    pthread_mutex_lock(&fake_lock);
    const ncclComm_t comm = transfer->comm;
    check(comm);
    struct fake_world *world = comm->world;
    bool ended = !moves;
    if (!ended) {
        world->parts[comm->rank] = transfer->part;
        ended = meet(comm, &world->transfer, move_all, transfer);
    }
    pthread_mutex_unlock(&fake_lock);
    return ended ? ncclSuccess : ncclInternalError;
}

/* To the end of the queue. The lock is held. */
static void send_mail(const struct transfer *transfer)
{
    const size_t bytes = bytes_of(transfer);
    struct mail **link = &transfer->comm->world->mail[transfer->root][transfer->comm->rank];
    while (*link != NULL)
        link = &(*link)->next;
    *link = calloc(1, sizeof **link + bytes);
    (*link)->bytes = bytes;
    memcpy((*link)->data, transfer->part.send, bytes);
    pthread_cond_broadcast(&fake_changed);
}

static void receive_mail(const struct transfer *transfer)
{
    const ncclComm_t comm = transfer->comm;
    struct mail **link = &comm->world->mail[comm->rank][transfer->root];
    comm->inside++;
    while (*link == NULL && !comm->abort)
        fake_wait();
    comm->inside--;
    struct mail *mail = *link;
    if (mail == NULL)
        return;
    if (mail->bytes != bytes_of(transfer))
        fake_die("a message is not as long as its receiver takes it to be");
    memcpy(transfer->part.recv, mail->data, mail->bytes);
    *link = mail->next;
    free(mail);
}

/* Messages are kept until they are received. */
static ncclResult_t exchange_mail(const struct transfer *transfer)
{
    pthread_mutex_lock(&fake_lock);
    check(transfer->comm);
    if (moves)
        transfer->move(transfer);
    pthread_mutex_unlock(&fake_lock);
    return ncclSuccess;
}

static ncclResult_t run_transfer(const struct transfer *transfer)
{
    const bool mails = transfer->move == send_mail || transfer->move == receive_mail;
    return mails ? exchange_mail(transfer) : transfer_data(transfer);
}

static void replay_transfer(void *argument)
{
    (void)run_transfer(argument);
}

/* Now, or in each launch of the graph that captures the stream. */
static ncclResult_t transfer_on(const struct transfer *transfer, cudaStream_t stream)
{
    return stream != NULL && fake_record(stream, replay_transfer, transfer, sizeof *transfer)
               ? ncclSuccess
               : run_transfer(transfer);
}

/* A rank sends before it receives, whatever the order of the calls in its group. */
static _Thread_local struct {
    struct transfer transfer;
    cudaStream_t stream;
} pending[TASKS];
static _Thread_local int npending;

static ncclResult_t receive_on(const struct transfer *transfer, cudaStream_t stream)
{
    if (depth == 0)
        return transfer_on(transfer, stream);
    if (npending == TASKS)
        fake_die("a group of the fake has too many receives");
    pending[npending].transfer = *transfer;
    pending[npending++].stream = stream;
    return ncclSuccess;
}

static void receive_pending(void)
{
    for (int i = 0; i < npending; i++)
        (void)transfer_on(&pending[i].transfer, pending[i].stream);
    npending = 0;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    check(comm);
    const int sum = (int)op - (int)ncclNumOps;
    if (sum >= SUMS || (sum >= 0 && comm->sums[sum] != (int)dtype + 1))
        fake_die("a reduction was made for another communicator or type, or is gone");
    struct transfer transfer = {comm, {.send = send, .recv = recv}, count, dtype, op, -1, reduce};
    if (sum >= 0) {
        transfer.op = ncclSum;
        transfer.part.factor = comm->factors[sum];
    }
    fake_windows_call(comm, send, recv, bytes_of(&transfer));
    pthread_mutex_unlock(&fake_lock);
    const ncclResult_t moved = transfer_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(OPERATE, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    const struct transfer transfer = {
        comm, {.send = send, .recv = recv}, count, dtype, ncclSum, root, broadcast};
    const ncclResult_t moved = transfer_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(OPERATE, comm, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    const struct transfer transfer = {comm,  {.send = send, .recv = recv}, count, dtype, op, root,
                                      reduce};
    const ncclResult_t moved = transfer_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(OPERATE, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, cudaStream_t stream)
{
    const struct transfer transfer = {comm,  {.send = send, .recv = recv}, count, dtype, ncclSum, 0,
                                      gather};
    const ncclResult_t moved = transfer_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(OPERATE, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const struct transfer transfer = {
        comm, {.send = send, .recv = recv}, count, dtype, op, 0, reduce_scatter};
    const ncclResult_t moved = transfer_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(OPERATE, comm, stream);
}

/* Unless their data move, sends and receives complete at once. NCCL may let the devices reach each other
 * first, by calls that a capture refuses. */
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t dtype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    const struct transfer transfer = {comm, {.send = send}, count, dtype, ncclSum, peer, send_mail};
    fake_need_relaxed();
    const ncclResult_t moved = transfer_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(PASS, comm, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    const struct transfer transfer = {comm,    {.recv = recv}, count,       dtype,
                                      ncclSum, peer,           receive_mail};
    const ncclResult_t moved = receive_on(&transfer, stream);
    return moved != ncclSuccess ? moved : operation(PASS, comm, stream);
}
