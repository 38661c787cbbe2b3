/* Do the statistics count the bytes that move? This program brings its own table of backends: the
 * host backend, but its ranks share nothing. Whatever one rank learns from another goes through a
 * pipe between the two, which counts. Collectives are made of it in the plainest way (allgather and
 * allreduce as rings, a broadcast as a chain), so every byte that a rank has from another was
 * counted, by something that knows nothing of the library's own books. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "kernels/cpu/kernels_cpu.h"
#include "tests/own_backend.h"
#include "tests/team.h"

extern const struct tri_backend tri_backend_host;

/* --------------------------------------------------------------------------------------- pipes */

enum { MOST_RANKS = 4, PIPE_BYTES = 1 << 22, COUNT = 12000, K = 120, CALLS = 6 };

/* What `from` has written and `to` has not read. Large enough that no writer ever waits. */
struct pipe {
    unsigned char data[PIPE_BYTES];
    size_t begin, end;
};

static struct pipe pipes[MOST_RANKS][MOST_RANKS]; /* from, to */
static uint64_t sent[MOST_RANKS], received[MOST_RANKS], moved[MOST_RANKS][MOST_RANKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t written = PTHREAD_COND_INITIALIZER;
static _Atomic bool
    through_pipes; /* or the host backend does it: to make communicators and states */

static void put(int from, int to, const void *data, size_t bytes)
{
    struct pipe *pipe = &pipes[from][to];
    pthread_mutex_lock(&lock);
    if (pipe->begin == pipe->end)
        pipe->begin = pipe->end = 0;
    if (bytes > PIPE_BYTES - pipe->end)
        abort();
    if (bytes != 0)
        memcpy(pipe->data + pipe->end, data, bytes);
    pipe->end += bytes;
    sent[from] += bytes;
    moved[from][to] += bytes;
    pthread_cond_broadcast(&written);
    pthread_mutex_unlock(&lock);
}

static void take(int from, int to, void *data, size_t bytes)
{
    struct pipe *pipe = &pipes[from][to];
    pthread_mutex_lock(&lock);
    while (pipe->end - pipe->begin < bytes)
        pthread_cond_wait(&written, &lock);
    if (bytes != 0)
        memcpy(data, pipe->data + pipe->begin, bytes);
    pipe->begin += bytes;
    received[to] += bytes;
    pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------------------------- collectives */

struct place {
    int rank, size, next, before;
};

static void move(void *dst, const void *src, size_t bytes)
{
    if (dst != src && bytes != 0)
        memcpy(dst, src, bytes);
}

static void allgather(const struct tri_call *call, struct place at, size_t bytes)
{
    char *recv = call->recv;
    move(recv + (size_t)at.rank * bytes, call->send, bytes);
    for (int step = 0; step + 1 < at.size; step++) {
        const int block = (at.rank - step + at.size) % at.size;
        put(at.rank, at.next, recv + (size_t)block * bytes, bytes);
        take(at.before, at.rank, recv + (size_t)((block + at.size - 1) % at.size) * bytes, bytes);
    }
}

static void broadcast(const struct tri_call *call, struct place at, size_t bytes)
{
    if (at.rank == call->peer)
        move(call->recv, call->send, bytes);
    else
        take(at.before, at.rank, call->recv, bytes);
    if (at.next != call->peer)
        put(at.rank, at.next, call->recv, bytes);
}

/* Block `block` of the elements, in bytes. */
static size_t begin_of(const struct tri_call *call, struct place at, int block)
{
    return call->count * (size_t)block / (size_t)at.size * trib_dtype_size(call->dtype);
}

static void pass(const struct tri_call *call, struct place at, int block, void *incoming)
{
    char *recv = call->recv;
    const int other = (block + at.size - 1) % at.size;
    const size_t begin = begin_of(call, at, block), end = begin_of(call, at, block + 1),
                 from = begin_of(call, at, other), bytes = begin_of(call, at, other + 1) - from;
    put(at.rank, at.next, recv + begin, end - begin);
    take(at.before, at.rank, incoming == NULL ? recv + from : incoming, bytes);
    if (incoming != NULL) {
        void *const dst = recv + from;
        const void *const src[] = {dst, incoming};
        const struct tri_reduction reduction = {src, 2, call->dtype, call->op, NULL};
        CHECK_OK(tri_kernels_cpu.reduce(&dst, 1, &reduction, bytes / trib_dtype_size(call->dtype),
                                        NULL));
    }
}

/* Reduced around the ring, in recv, so that a rank ends with its own block. */
static void reduce_around(const struct tri_call *call, struct place at, size_t bytes)
{
    void *incoming = malloc(bytes + 1);
    move(call->recv, call->send, bytes);
    for (int step = 1; step < at.size; step++)
        pass(call, at, (at.rank - step + at.size) % at.size, incoming);
    free(incoming);
}

/* And then passed around. */
static void allreduce(const struct tri_call *call, struct place at, size_t bytes)
{
    reduce_around(call, at, bytes);
    for (int step = 0; step + 1 < at.size; step++)
        pass(call, at, (at.rank - step + at.size) % at.size, NULL);
}

/* Of equal blocks. */
static void reduce_scatter(const struct tri_call *call, struct place at, size_t bytes)
{
    struct tri_call all = *call;
    all.count = call->count * (size_t)at.size;
    all.recv = malloc(bytes * (size_t)at.size + 1);
    reduce_around(&all, at, bytes * (size_t)at.size);
    move(call->recv, (char *)all.recv + (size_t)at.rank * bytes, bytes);
    free(all.recv);
}

static trib_status collective(const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *host = tri_backend_host.transport;
    const struct place at = {host->rank(calls->transport), host->size(calls->transport),
                             (host->rank(calls->transport) + 1) % host->size(calls->transport),
                             (host->rank(calls->transport) + host->size(calls->transport) - 1) %
                                 host->size(calls->transport)};
    if (!atomic_load(&through_pipes))
        return host->collective(calls, n);
    for (size_t i = 0; i < n; i++)
        if (calls[i].kind == TRI_SEND)
            put(at.rank, calls[i].peer, calls[i].send,
                calls[i].count * trib_dtype_size(calls[i].dtype));
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = calls[i].count * trib_dtype_size(calls[i].dtype);
        switch (calls[i].kind) {
        case TRI_SEND:
            break;
        case TRI_RECV:
            take(calls[i].peer, at.rank, calls[i].recv, bytes);
            break;
        case TRI_ALLGATHER:
            allgather(&calls[i], at, bytes);
            break;
        case TRI_BROADCAST:
            broadcast(&calls[i], at, bytes);
            break;
        case TRI_ALLREDUCE:
            allreduce(&calls[i], at, bytes);
            break;
        case TRI_REDUCE_SCATTER:
            reduce_scatter(&calls[i], at, bytes);
            break;
        default:
            CHECK_MSG(false, "no pipes for a collective of kind %d", (int)calls[i].kind);
        }
    }
    return TRIB_OK;
}

static struct tri_transport_ops transport_ops;

static void make_backend(void)
{
    transport_ops = *tri_backend_host.transport;
    transport_ops.collective = collective;
    transport_ops.collective_list = NULL; /* which would go around the pipes, as would */
    transport_ops.symmetric = NULL;       /* packets that are read where they were made */
    backend = tri_backend_host;
    backend.name = "pipes";
    backend.transport = &transport_ops;
}

/* --------------------------------------------------------------------------------------- trials */

struct trial {
    struct team team;
    trib_sparse_options options;
    _Atomic int ready, done, judged;
    uint64_t reported_sent[MOST_RANKS], reported_received[MOST_RANKS];
};

/* Small integers with a few large ones among them, so that sums are exact in any order. */
static float gradient(int rank, int call, size_t i)
{
    const uint32_t any = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503 + call * 9973);
    return (float)(any % 7) - 3 + (any % 61 == 0 ? (float)(any >> 20) : 0);
}

static void start(struct trial *trial, int size)
{
    team_barrier(&trial->ready, size);
    atomic_store(&through_pipes, true);
}

static void sparse_rank(int rank, int size, void *argument)
{
    struct trial *trial = argument;
    const trib_stream stream = trial->team.streams[rank];
    trib_sparse_statistics reported = TRIB_SPARSE_STATISTICS_INIT;
    trib_sparse *state = NULL;
    void *data = NULL;
    if (!CHECK_OK(trib_device_alloc(&data, trial->team.devices[rank], 2 * COUNT * sizeof(float))) ||
        !CHECK_OK(
            trib_sparse_create(&state, trial->team.comms[rank], COUNT, TRIB_F32, &trial->options)))
        abort(); /* the others would wait */
    float *input = data;
    start(trial, size);
    for (int call = 0; call < CALLS; call++) {
        for (size_t i = 0; i < COUNT; i++)
            input[i] = gradient(rank, call, i);
        CHECK_OK(trib_sparse_allreduce(state, input, input + COUNT, stream));
        CHECK(team_wait(&trial->team, rank, 60000));
        CHECK_OK(trib_sparse_status(state));
    }
    CHECK_OK(trib_sparse_statistics_get(&reported, state));
    CHECK(reported.calls_applied == CALLS);
    trial->reported_sent[rank] = reported.bytes_sent;
    trial->reported_received[rank] = reported.bytes_received;
    team_barrier(&trial->done, size);
    atomic_store(&through_pipes, false);
    team_barrier(&trial->judged, size);
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_device_free(trial->team.devices[rank], data));
}

/* Blocks of a ring differ by an element, and a rank passes on one block or another: `slack` bytes.
 * Over all ranks there is nothing to round. */
static void judge(const struct trial *trial, int size, uint64_t slack)
{
    uint64_t reported = 0, counted = 0;
    for (int rank = 0; rank < size; rank++) {
        const int64_t more_sent = (int64_t)(trial->reported_sent[rank] - sent[rank]),
                      more_received = (int64_t)(trial->reported_received[rank] - received[rank]);
        CHECK_MSG((uint64_t)llabs(more_sent) <= slack && (uint64_t)llabs(more_received) <= slack,
                  "rank %d sent %llu bytes and received %llu; reported are %llu and %llu", rank,
                  (unsigned long long)sent[rank], (unsigned long long)received[rank],
                  (unsigned long long)trial->reported_sent[rank],
                  (unsigned long long)trial->reported_received[rank]);
        reported += trial->reported_sent[rank] + trial->reported_received[rank];
        counted += sent[rank] + received[rank];
    }
    CHECK_MSG(reported == counted && (counted > 0) == (size > 1),
              "%llu bytes went through the pipes, reported are %llu", (unsigned long long)counted,
              (unsigned long long)reported);
}

static void clear(void)
{
    memset(sent, 0, sizeof sent);
    memset(received, 0, sizeof received);
    memset(moved, 0, sizeof moved);
}

static void prepare(struct trial *trial, const char *algorithm, trib_dtype wire)
{
    *trial = (struct trial){.options = TRIB_SPARSE_OPTIONS_INIT};
    trial->options.algorithm = algorithm;
    trial->options.flags = TRIB_SPARSE_USE_K;
    trial->options.k = K;
    trial->options.wire = wire;
    clear();
}

static void sparse(int size, const char *algorithm, trib_dtype wire, const char *constants)
{
    struct trial trial;
    prepare(&trial, algorithm, wire);
    trial.options.constants = constants;
    check_begin("%s, %d ranks%s%s%s", algorithm, size, wire != 0 ? ", bf16" : "",
                constants != NULL ? ", " : "", constants != NULL ? constants : "");
    if (CHECK(team_create(&trial.team, "pipes", size, NULL)))
        check_ranks(size, sparse_rank, &trial);
    judge(&trial, size, CALLS * 64);
    team_destroy(&trial.team);
    check_end();
}

/* ----------------------------------------------------------------------------------- hier's hosts */

/* A packet of k entries: header, indices, values, each padded. */
static uint64_t packet_bytes(uint64_t k, trib_dtype wire)
{
    const uint64_t values = (64 + k * sizeof(uint32_t) + 15) / 16 * 16;
    return (values + k * (wire == 0 ? sizeof(float) : trib_dtype_size(wire)) + 63) / 64 * 64;
}

/* Between hosts every packet goes once to each other host. Inside a host of L ranks L - 1 parts of each
 * shard are sent to its rank, and every packet to each rank that has not had it from elsewhere. COUNT
 * and K are multiples of all numbers of ranks. */
static void judge_hosts(int size, const int32_t *hosts, trib_dtype wire)
{
    uint64_t inside = 0, between = 0, packets = 0, shards = 0, there_are = 0;
    for (int rank = 0; rank < size; rank++) {
        uint64_t ranks = 0, before = 0;
        for (int other = 0; other < size; other++) {
            const bool together = hosts[rank] == hosts[other];
            ranks += together;
            before += together && other < rank;
            *(together ? &inside : &between) += moved[rank][other];
        }
        there_are += before == 0;
        packets += packet_bytes(K / ranks, wire);
        shards += (ranks - 1) * COUNT / ranks * sizeof(float);
    }
    CHECK_MSG(between == CALLS * (there_are - 1) * packets, "%llu bytes between hosts, not %llu",
              (unsigned long long)between, (unsigned long long)(CALLS * (there_are - 1) * packets));
    CHECK_MSG(inside == CALLS * (shards + ((uint64_t)size - there_are) * packets),
              "%llu bytes inside hosts, not %llu", (unsigned long long)inside,
              (unsigned long long)(CALLS * (shards + ((uint64_t)size - there_are) * packets)));
}

static void hosts_of(int size, const int32_t *hosts, trib_dtype wire)
{
    struct trial trial;
    prepare(&trial, "hier", wire);
    trial.options.hosts = hosts;
    check_begin("hier, %d ranks on hosts %d %d %d %d%s", size, (int)hosts[0], (int)hosts[1],
                (int)hosts[2], (int)hosts[3], wire != 0 ? ", bf16" : "");
    if (CHECK(team_create(&trial.team, "pipes", size, NULL)))
        check_ranks(size, sparse_rank, &trial);
    judge(&trial, size, 0);
    judge_hosts(size, hosts, wire);
    team_destroy(&trial.team);
    check_end();
}

static void shapes(int size)
{
    static const int32_t all[][MOST_RANKS] = {{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1},
                                              {0, 1, 1, 1}, {0, 0, 0, 1}, {0, 0, 1, 2},
                                              {0, 1, 2, 2}, {0, 1, 2, 3}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hosts_of(size, all[i], 0);
        hosts_of(size, all[i], TRIB_BF16);
    }
}

/* -------------------------------------------------------------------------------- dense, beside */

static void dense_rank(int rank, int size, void *argument)
{
    struct trial *trial = argument;
    static float data[MOST_RANKS][COUNT];
    trib_comm *comm = trial->team.comms[rank];
    trib_counters counters = TRIB_COUNTERS_INIT;
    const trib_tensor list[] = {{data[rank], COUNT - 100, TRIB_F32, 0},
                                {data[rank] + COUNT - 100, 100, TRIB_F32, 0}};
    start(trial, size);
    CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, trial->team.streams[rank]));
    CHECK(team_wait(&trial->team, rank, 60000));
    CHECK_OK(trib_comm_counters(&counters, comm));
    const uint64_t ranks = (uint64_t)size;
    trial->reported_sent[rank] = trial->reported_received[rank] =
        2 * counters.bytes * (ranks - 1) / ranks;
    team_barrier(&trial->done, size);
    atomic_store(&through_pipes, false);
    team_barrier(&trial->judged, size);
}

/* By trib_counters a program knows what a dense list moves: 2(P-1)/P of the bytes. Its tensors lie
 * at multiples of 16 bytes, as these do. */
static void dense(int size)
{
    struct trial trial = {.reported_sent = {0}};
    clear();
    check_begin("a dense list, %d ranks", size);
    if (CHECK(team_create(&trial.team, "pipes", size, NULL)))
        check_ranks(size, dense_rank, &trial);
    judge(&trial, size, 0);
    team_destroy(&trial.team);
    check_end();
}

int main(void)
{
    make_backend();
    for (int size = 1; size <= MOST_RANKS; size++) {
        dense(size);
        for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
            sparse(size, trib_sparse_algorithm_name(i), 0, NULL);
            sparse(size, trib_sparse_algorithm_name(i), TRIB_BF16, NULL);
        }
        sparse(size, "oktopk", 0, "bert");
        shapes(size);
    }
    return check_finish("bytes_test");
}
