/* Sweep: one collective over sizes, types and reductions, in the manner of nccl-tests, with the peer
 * (plain NCCL, or memcpy on host) measured in the same run beside every row.
 *
 * A row's size is that of the larger buffer. Every row is checked once, element by element, before it
 * is timed. algbw = size / median; busbw = algbw times the collective's factor. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/bench.h"
#include "benches/collective.h"

struct options {
    const char *collective, *backend, *dtype, *op, *json;
    size_t begin, end;
    int factor, ranks, iterations, warmup, root;
    bool unchecked, check;
};

struct row {
    const struct bench_collective *collective;
    trib_dtype dtype;
    trib_op op;
    size_t count, bytes;
    bool in_place;
    size_t wrong;
    struct bench_result ours, peer;
};

/* Buffers of one row, a rank each. */
struct buffers {
    struct bench_call call[BENCH_MAX_RANKS];
    void *large[BENCH_MAX_RANKS], *small[BENCH_MAX_RANKS];
};

static void run_ours(const struct bench *bench, int rank, void *argument)
{
    const struct bench_call *call = &((struct buffers *)argument)->call[rank];
    BENCH_OK(call->collective->run(bench->comm[rank], call, bench->ranks, bench->stream[rank]));
}

static void run_peer(const struct bench *bench, int rank, void *argument)
{
    (void)bench->peer->run(bench, rank, &((struct buffers *)argument)->call[rank]);
}

static void make_buffers(const struct bench *bench, struct buffers *buffers, const struct row *row,
                         int root)
{
    const struct bench_collective *c = row->collective;
    const size_t size = trib_dtype_size(row->dtype);
    for (int rank = 0; rank < bench->ranks; rank++) {
        const size_t send = c->send_elements(row->count, bench->ranks) * size;
        const size_t recv = c->recv_elements(row->count, bench->ranks) * size;
        char *large = bench_alloc(bench, rank, send > recv ? send : recv);
        char *small = row->in_place ? large + c->in_place_offset(row->count, rank) * size
                                    : bench_alloc(bench, rank, send > recv ? recv : send);
        buffers->large[rank] = large;
        buffers->small[rank] = row->in_place ? NULL : small;
        buffers->call[rank] = (struct bench_call){.collective = c, .count = row->count,
            .dtype = row->dtype, .op = row->op, .root = root,
            .send = send > recv ? large : small, .recv = send > recv ? small : large};
    }
}

static void drop_buffers(const struct bench *bench, struct buffers *buffers)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        bench_free(bench, rank, buffers->large[rank]);
        bench_free(bench, rank, buffers->small[rank]);
    }
}

/* Poison recv, fill send, in host memory first. */
static void fill(const struct bench *bench, struct buffers *buffers, int rank, void *host)
{
    const struct bench_call *call = &buffers->call[rank];
    const size_t size = trib_dtype_size(call->dtype);
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const size_t send = call->collective->send_elements(call->count, bench->ranks);
    memset(host, 0x5a, recv * size);
    bench_copy(bench, rank, call->recv, host, recv * size);
    for (size_t i = 0; i < send; i++)
        bench_encode(host, i, bench_input(rank, i), call->dtype);
    bench_copy(bench, rank, call->send, host, send * size);
}

static size_t count_wrong(const struct bench *bench, const struct bench_call *call, int rank,
                          void *host)
{
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const double slack = call->op == TRIB_AVG && call->dtype <= TRIB_F64 ? 1.0 / 64 : 0;
    size_t wrong = 0;
    bench_copy(bench, rank, host, call->recv, recv * trib_dtype_size(call->dtype));
    for (size_t i = 0; i < recv; i++) {
        double expected;
        uint64_t wrapped = 0;
        if (!call->collective->expected(&expected, call, rank, bench->ranks, i))
            return 0;
        if (slack == 0) { /* what the type makes of it */
            bench_encode(&wrapped, 0, expected, call->dtype);
            expected = bench_decode(&wrapped, 0, call->dtype);
        }
        wrong += !(fabs(bench_decode(host, i, call->dtype) - expected) <= slack);
    }
    return wrong;
}

static size_t check_row(const struct bench *bench, struct buffers *buffers, const struct row *row)
{
    size_t wrong = 0;
    void *host = malloc(row->bytes + 8);
    if (host == NULL)
        exit(EXIT_FAILURE);
    for (int rank = 0; rank < bench->ranks; rank++)
        fill(bench, buffers, rank, host);
    (void)bench_time(bench, run_ours, buffers, 0, 1);
    for (int rank = 0; rank < bench->ranks; rank++)
        wrong += count_wrong(bench, &buffers->call[rank], rank, host);
    free(host);
    return wrong;
}

/* The two take turns, so that neither has the warmer machine. */
static void measure(const struct bench *bench, struct row *row, const struct options *options)
{
    struct buffers buffers;
    make_buffers(bench, &buffers, row, options->root);
    row->wrong = options->check ? check_row(bench, &buffers, row) : 0;
    (void)bench_time(bench, run_peer, &buffers, options->warmup, 1);
    row->ours = bench_time(bench, run_ours, &buffers, options->warmup, options->iterations);
    row->peer = bench_time(bench, run_peer, &buffers, options->warmup, options->iterations);
    drop_buffers(bench, &buffers);
}

static double gigabytes(const struct row *row, const struct bench_result *result)
{
    return result->device.median > 0 ? (double)row->bytes / result->device.median * 1e-3 : 0;
}

static void print_heading(const char *peer)
{
    printf("%-14s %12s %5s %5s %3s | %10s %10s %8s %8s %6s %7s | %10s %10s %8s | %6s\n",
           "collective", "bytes", "type", "op", "in", "median", "p99", "algbw", "busbw", "queue",
           "wrong", peer, "p99", "algbw", "ratio");
}

static void print_row(const struct row *row, int ranks)
{
    const double bandwidth = gigabytes(row, &row->ours);
    printf("%-14s %12zu %5s %5s %3s | %10.2f %10.2f %8.2f %8.2f %6.2f %7zu | %10.2f %10.2f %8.2f |"
           " %6.3f\n",
           row->collective->name, row->bytes, trib_dtype_name(row->dtype),
           row->collective->reduces ? trib_op_name(row->op) : "-", row->in_place ? "yes" : "no",
           row->ours.device.median, row->ours.device.p99, bandwidth,
           bandwidth * row->collective->bus_factor(ranks), row->ours.host, row->wrong,
           row->peer.device.median, row->peer.device.p99, gigabytes(row, &row->peer),
           row->peer.device.median > 0 ? row->ours.device.median / row->peer.device.median : 0);
    fflush(stdout);
}

static void write_json(FILE *file, const struct row *row, const struct bench *bench, bool first)
{
    fprintf(file,
            "%s\n  {\"collective\": \"%s\", \"backend\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
            "\"count\": %zu, \"dtype\": \"%s\", \"op\": \"%s\", \"in_place\": %s, \"median_us\": "
            "%.3f, \"p99_us\": %.3f, \"queue_us\": %.3f, \"wrong\": %zu, \"peer\": \"%s\", "
            "\"peer_median_us\": %.3f, \"peer_p99_us\": %.3f, \"peer_queue_us\": %.3f}",
            first ? "" : ",", row->collective->name, bench->backend, bench->ranks, row->bytes,
            row->count, trib_dtype_name(row->dtype),
            row->collective->reduces ? trib_op_name(row->op) : "", row->in_place ? "true" : "false",
            row->ours.device.median, row->ours.device.p99, row->ours.host, row->wrong,
            bench->peer->name, row->peer.device.median, row->peer.device.p99, row->peer.host);
}

/* "64K" and the like. */
static size_t parse_bytes(const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    const char *unit = strchr("KMG", *end);
    const int shift = *end == '\0' || unit == NULL ? 0 : 10 * (int)(unit - "KMG" + 1);
    return (size_t)ldexp(value, shift);
}

static bool in_list(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return strcmp(list, "all") == 0;
}

static void usage(const char *program)
{
    printf("usage: %s [options]\n"
           "  -c, --collective LIST  allreduce,broadcast,... or all (allreduce)\n"
           "  -B, --backend NAME     nccl or host (the best that has a device)\n"
           "  -r, --ranks N          (all GPUs; 2 on host)\n"
           "  -b, --begin BYTES      smallest size, K M G allowed (8)\n"
           "  -e, --end BYTES        largest size (64M)\n"
           "  -f, --factor N         from size to size (4)\n"
           "  -d, --dtype LIST       f16,bf16,f32,... or all (f32)\n"
           "  -o, --op LIST          sum,prod,min,max,avg or all (sum)\n"
           "  -n, --iterations N     timed iterations (100, fewer above 4 MiB)\n"
           "  -w, --warmup N         untimed iterations (5)\n"
           "      --root N           root of broadcast and reduce (0)\n"
           "      --no-check         do not compare results\n"
           "      --unchecked        open the communicators with TRIB_UNCHECKED\n"
           "  -J, --json FILE        write the rows as JSON too\n",
           program);
}

static struct options parse(int argc, char **argv)
{
    enum { NO_CHECK = 256, UNCHECKED, ROOT };
    static const struct option names[] = {
        {"collective", 1, NULL, 'c'}, {"backend", 1, NULL, 'B'},  {"ranks", 1, NULL, 'r'},
        {"begin", 1, NULL, 'b'},      {"end", 1, NULL, 'e'},      {"factor", 1, NULL, 'f'},
        {"dtype", 1, NULL, 'd'},      {"op", 1, NULL, 'o'},       {"iterations", 1, NULL, 'n'},
        {"warmup", 1, NULL, 'w'},     {"json", 1, NULL, 'J'},     {"no-check", 0, NULL, NO_CHECK},
        {"root", 1, NULL, ROOT},      {"help", 0, NULL, 'h'},     {"unchecked", 0, NULL, UNCHECKED},
        {NULL, 0, NULL, 0}};
    struct options options = {.collective = "allreduce", .dtype = "f32", .op = "sum", .begin = 8,
                              .end = (size_t)64 << 20, .factor = 4, .iterations = 100,
                              .warmup = 5, .check = true};
    int option;
    while ((option = getopt_long(argc, argv, "c:B:r:b:e:f:d:o:n:w:J:h", names, NULL)) != -1) {
        switch (option) {
        case 'c': options.collective = optarg; break;
        case 'B': options.backend = optarg; break;
        case 'r': options.ranks = atoi(optarg); break;
        case 'b': options.begin = parse_bytes(optarg); break;
        case 'e': options.end = parse_bytes(optarg); break;
        case 'f': options.factor = atoi(optarg); break;
        case 'd': options.dtype = optarg; break;
        case 'o': options.op = optarg; break;
        case 'n': options.iterations = atoi(optarg); break;
        case 'w': options.warmup = atoi(optarg); break;
        case 'J': options.json = optarg; break;
        case NO_CHECK: options.check = false; break;
        case UNCHECKED: options.unchecked = true; break;
        case ROOT: options.root = atoi(optarg); break;
        default: usage(argv[0]); exit(option == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
        }
    }
    if (options.factor < 2 || options.iterations < 1 || options.warmup < 0 || options.begin < 1) {
        usage(argv[0]);
        exit(EXIT_FAILURE);
    }
    return options;
}

struct sweep {
    struct bench bench;
    struct options options;
    FILE *json;
    size_t rows, wrong;
};

static void sweep_sizes(struct sweep *sweep, struct row row)
{
    const struct bench_collective *c = row.collective;
    const int ranks = sweep->bench.ranks;
    const size_t size = trib_dtype_size(row.dtype);
    const size_t blocks = c->send_elements(1, ranks) > c->recv_elements(1, ranks)
                              ? c->send_elements(1, ranks) : c->recv_elements(1, ranks);
    size_t previous = 0;
    for (size_t bytes = sweep->options.begin; bytes <= sweep->options.end;
         bytes *= (size_t)sweep->options.factor) {
        row.count = bytes / size / blocks;
        row.bytes = row.count * blocks * size;
        if (row.count == 0 || row.bytes == previous)
            continue;
        previous = row.bytes;
        struct options options = sweep->options;
        if (row.bytes > (size_t)4 << 20 && options.iterations > 20)
            options.iterations = 20;
        measure(&sweep->bench, &row, &options);
        print_row(&row, ranks);
        if (sweep->json != NULL)
            write_json(sweep->json, &row, &sweep->bench, sweep->rows == 0);
        sweep->rows++;
        sweep->wrong += row.wrong;
    }
}

static void sweep_collective(struct sweep *sweep, const struct bench_collective *c)
{
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
        if (!in_list(sweep->options.dtype, trib_dtype_name(dtype)))
            continue;
        for (trib_op op = TRIB_SUM; op <= (c->reduces ? TRIB_AVG : TRIB_SUM); op++) {
            if (c->reduces && !in_list(sweep->options.op, trib_op_name(op)))
                continue;
            for (int in_place = 0; in_place <= (c->can_in_place ? 1 : 0); in_place++)
                sweep_sizes(sweep, (struct row){.collective = c, .dtype = dtype, .op = op,
                                                .in_place = in_place != 0});
        }
    }
}

int main(int argc, char **argv)
{
    struct sweep sweep = {.options = parse(argc, argv)};
    const struct options *options = &sweep.options;
    bench_open(&sweep.bench, options->backend, options->ranks,
               options->unchecked ? TRIB_UNCHECKED : 0);
    if (options->root < 0 || options->root >= sweep.bench.ranks) {
        fprintf(stderr, "--root %d is not a rank\n", options->root);
        return EXIT_FAILURE;
    }
    if (options->json != NULL && (sweep.json = fopen(options->json, "w")) == NULL) {
        perror(options->json);
        return EXIT_FAILURE;
    }
    bench_print_setting(&sweep.bench);
    print_heading(sweep.bench.peer->name);
    if (sweep.json != NULL)
        fputc('[', sweep.json);
    for (const struct bench_collective *c = bench_collectives; c->name != NULL; c++)
        if (in_list(options->collective, c->name))
            sweep_collective(&sweep, c);
    if (sweep.json != NULL && (fputs("\n]\n", sweep.json) < 0 || fclose(sweep.json) != 0))
        perror(options->json);
    bench_close(&sweep.bench);
    printf("# %zu rows, %zu wrong elements\n", sweep.rows, sweep.wrong);
    return sweep.rows > 0 && sweep.wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
