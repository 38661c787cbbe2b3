/* Rows as a table and as JSON.
 *
 * algbw = bytes / median; busbw = algbw times the collective's factor. */
#include "benches/processes.h"
#include "benches/sweep.h"

/* GB/s of one side of a row. */
static double algbw(const struct row *row, const struct bench_result *result)
{
    return result->device.median > 0 ? (double)row->bytes / result->device.median * 1e-3 : 0;
}

static double busbw(const struct row *row, const struct bench_result *result, int ranks)
{
    return algbw(row, result) * row->collective->bus_factor(ranks);
}

void sweep_print_heading(const struct bench *bench, const struct options *options)
{
    if (options->eager || options->graph)
        printf("# an iteration is a burst of %d calls on idle streams, its time divided by them\n",
               options->calls);
    printf("%-14s %-10s %-5s %7s %11s %4s %4s %3s | %10s %10s %8s %8s %8s %6s | %10s %10s %8s %8s "
           "%8s | %6s\n",
           "collective", "variant", "way", "threads", "bytes", "type", "op", "in", "median", "p99",
           "algbw", "busbw", "queue", "wrong", bench->peer->name, "p99", "algbw", "busbw", "queue",
           "ratio");
}

static const char *type_name(const struct row *row)
{
    return row->collective->kind == BENCH_BARRIER ? "-" : trib_dtype_name(row->dtype);
}

void sweep_print(const struct row *row, const struct bench *bench)
{
    const struct bench_stats *ours = &row->ours.device, *peer = &row->peer.device;
    printf("%-14s %-10s %-5s %7d %11zu %4s %4s %3s | ", row->collective->name, row->variant->name,
           bench_way_name(row->way), bench->threads, row->bytes, type_name(row),
           row->collective->reduces ? trib_op_name(row->op) : "-", row->in_place ? "yes" : "no");
    printf("%10.2f %10.2f %8.2f %8.2f %8.2f %6zu | ", ours->median, ours->p99,
           algbw(row, &row->ours), busbw(row, &row->ours, bench->ranks), row->ours.host,
           row->wrong);
    printf("%10.2f %10.2f %8.2f %8.2f %8.2f | %6.3f\n", peer->median, peer->p99,
           algbw(row, &row->peer), busbw(row, &row->peer, bench->ranks), row->peer.host,
           peer->median > 0 ? ours->median / peer->median : 0);
    fflush(stdout);
}

/* The members of one side, each name begun with `prefix`. */
static void write_side(FILE *file, const char *prefix, const struct row *row,
                       const struct bench_result *result, int ranks)
{
    fprintf(file,
            ", \"%smedian_us\": %.3f, \"%sp99_us\": %.3f, \"%squeue_us\": %.3f, "
            "\"%salgbw\": %.3f, \"%sbusbw\": %.3f",
            prefix, result->device.median, prefix, result->device.p99, prefix, result->host, prefix,
            algbw(row, result), prefix, busbw(row, result, ranks));
}

void sweep_write_json(FILE *file, const struct row *row, const struct bench *bench, bool first)
{
    fprintf(file,
            "%s\n  {\"collective\": \"%s\", \"variant\": \"%s\", \"way\": \"%s\", \"calls\": %d, "
            "\"backend\": \"%s\", \"ranks\": %d, \"threads\": %d, \"processes\": %d, "
            "\"bytes\": %zu, \"count\": %zu, \"dtype\": \"%s\", "
            "\"op\": \"%s\", \"in_place\": %s, \"wrong\": %zu",
            first ? "" : ",", row->collective->name, row->variant->name, bench_way_name(row->way),
            row->calls, bench->backend, bench->ranks, bench->threads, bench_processes(), row->bytes,
            row->count, type_name(row), row->collective->reduces ? trib_op_name(row->op) : "",
            row->in_place ? "true" : "false", row->wrong);
    write_side(file, "", row, &row->ours, bench->ranks);
    fprintf(file, ", \"peer\": \"%s\"", bench->peer->name);
    write_side(file, "peer_", row, &row->peer, bench->ranks);
    fputc('}', file);
}
