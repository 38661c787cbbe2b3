/* auto: which algorithm, and why.
 *
 * Models the time of a call in three parts: bytes that each device reads and writes, bytes through
 * the bottleneck, and latency. How fast a device is, the backend says (struct tri_speed, whose
 * latency is that of a few kernels); the link was measured (measure.c), on several hosts as the
 * network of a host. The model is rough; only the order of its figures matters. On 2 H200
 * (benches/results/h200x2-sparse.txt) its guess of topka, of 1M to 268M elements, is at most a sixth
 * off:
 *
 *   dense   accumulate, sum over the ring, write the result. On several hosts NCCL first adds up
 *           inside each host, so a host sends 2n(H-1)/H.
 *   topka   one selection, one allgather of P lists, of which a host receives those of all ranks on
 *           other hosts, one merge.
 *   srs     one selection, a reduce-scatter and an allgather, 2 ceil(log2 P) messages, one merge;
 *           in each round of the reduce-scatter a merge, a cut, and the residual gets what is cut
 *           off.
 *
 * Beside the exchanges, a call of dense runs about 3 times as many kernels as take that latency, of
 * topka 4 times, of srs 10 times more in each round.
 *
 * An entry read from a tensor, or merged, costs a sector of memory, however small it is.
 *
 * A sparse algorithm is chosen only if it clearly wins against dense, for it holds entries back. Where
 * the caller allows bf16 (`wire`), it must also win against a rival that no state runs, a plain
 * allreduce of a gradient in bf16, without residual or anything else. That one is guessed a tenth to
 * a quarter too fast (on 2 H200), because the link is measured with the fastest kernels there are.
 *
 * In these three every rank's own largest entries count, as users of a sparse allreduce expect, and
 * all sizes are fixed. The others run only by name. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/sparse/algorithm.h"

static const double sector = 32; /* bytes of memory that are read or written at once */
static const double passes = 12; /* of srs over k entries, in each step */
static const double clear = 1.2; /* a win by more than the model's error */

struct model {
    double n, k, ranks, hosts;
    double gradient, acc, entry;  /* bytes of one */
    double copy, select, kernels; /* kernels: seconds of a few */
    double latency, bandwidth;    /* of the link */
};

static struct model model_of(const struct tri_sparse_params *params,
                             const struct tri_machine_speed *speed)
{
    return (struct model){
        .n = (double)params->count,
        .k = params->k,
        .ranks = params->size,
        .hosts = speed->hosts,
        .gradient = (double)trib_dtype_size(params->dtype),
        .acc = (double)trib_dtype_size(params->acc),
        .entry = (double)(sizeof(uint32_t) + trib_dtype_size(params->wire)),
        .copy = speed->device.copy,
        .select = speed->device.select,
        .kernels = speed->device.latency,
        .latency = speed->latency,
        .bandwidth = speed->bandwidth,
    };
}

/* Bytes by which acc is made, or, in place, read; with momentum the velocity, too. */
static double making(const struct model *model, const struct tri_sparse_params *params)
{
    const double acc = params->in_place ? model->acc : model->gradient + 2 * model->acc;
    return model->n * (params->momentum == 0 ? acc : acc + 2 * model->acc);
}

/* The result is written, with what the lists have. */
static double writing(const struct model *model, const struct tri_sparse_params *params,
                      double entries)
{
    const double result = params->entries ? entries * model->entry : model->n * model->gradient;
    return (result + entries * sector) / model->copy;
}

/* Bytes through a rank's link, or through a host's network. */
static double moving(const struct model *model, double by_rank, double by_host)
{
    return (model->hosts > 1 ? by_host : by_rank) / model->bandwidth;
}

/* One allreduce of all elements, of so many bytes each. */
static double summing(const struct model *model, double element)
{
    const double bytes = 2 * model->n * element;
    return model->latency + moving(model, bytes * (model->ranks - 1) / model->ranks,
                                   bytes * (model->hosts - 1) / model->hosts);
}

static double dense(const struct model *model, const struct tri_sparse_params *params)
{
    const bool narrow = tri_is_narrow(params); /* then dense_narrow.c runs */
    const double half = (double)trib_dtype_size(TRIB_BF16);
    const double sums = narrow ? 2 * half : 3 * model->acc;
    const double made = making(model, params) + model->n * (sums + model->gradient);
    return made / model->copy + 3 * model->kernels + summing(model, narrow ? half : model->acc);
}

static double topka(const struct model *model, const struct tri_sparse_params *params)
{
    const double bytes = model->k * model->entry;
    return making(model, params) / model->select + model->latency + 4 * model->kernels +
           writing(model, params, model->ranks * model->k) +
           moving(model, bytes * (model->ranks - 1), bytes * model->ranks * (1 - 1 / model->hosts));
}

static double srs(const struct model *model, const struct tri_sparse_params *params)
{
    const double bytes = 2 * model->k * model->entry * (model->ranks - 1) / model->ranks;
    double steps = 0; /* the logarithm, rounded up */
    for (int32_t ranks = 1; ranks < params->size; ranks *= 2)
        steps++;
    return making(model, params) / model->select + 2 * steps * model->latency +
           (4 + 10 * steps) * model->kernels + steps * passes * model->k * sector / model->copy +
           writing(model, params, model->k) +
           moving(model, bytes, bytes * model->ranks / model->hosts);
}

/* What a plain allreduce of the tensor in bf16 takes; 0: bf16 is not allowed. */
static double rival(const struct model *model, const struct tri_sparse_params *params)
{
    return params->wire == TRIB_BF16 ? summing(model, (double)trib_dtype_size(TRIB_BF16)) : 0;
}

static void explain(struct tri_choice *choice, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append to the reason. */
static void explain(struct tri_choice *choice, const char *format, ...)
{
    const size_t used = strlen(choice->reason);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(choice->reason + used, sizeof choice->reason - used, format, arguments);
    va_end(arguments);
}

struct tri_choice tri_sparse_auto(const struct tri_sparse_params *params,
                                  const struct tri_machine_speed *speed)
{
    const struct model model = model_of(params, speed);
    const double seconds[] = {dense(&model, params), topka(&model, params), srs(&model, params)};
    const double plain = rival(&model, params);
    const bool fewer = seconds[2] < seconds[1];
    const double sparse = seconds[fewer ? 2 : 1];
    const bool loses = plain != 0 && plain <= sparse;
    struct tri_choice choice = {.algorithm = &tri_sparse_dense, .reason = ""};
    if (clear * sparse < seconds[0] && !loses)
        choice.algorithm = fewer ? &tri_sparse_srs : &tri_sparse_topka;
    explain(&choice, "%s: n %.3g, k %.3g, %d rank%s on %d host%s, ", choice.algorithm->name,
            model.n, model.k, params->size, params->size > 1 ? "s" : "", speed->hosts,
            speed->hosts > 1 ? "s" : "");
    explain(&choice, "%s %.3g GB/s and %.3g us; ",
            speed->measured ? "measured" : "not measured:", 1e-9 * speed->bandwidth,
            1e6 * speed->latency);
    explain(&choice, "a call is guessed at dense %.3g ms, topka %.3g, srs %.3g", 1e3 * seconds[0],
            1e3 * seconds[1], 1e3 * seconds[2]);
    if (plain != 0)
        explain(&choice, ", a plain bf16 allreduce %.3g%s", 1e3 * plain,
                loses ? ", which no sparse one beats" : "");
    return choice;
}
