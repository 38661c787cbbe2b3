/* auto: which algorithm, and why.
 *
 * Models the time of a call in three parts: bytes that each device reads and writes, bytes through
 * the bottleneck, and latency. The backend gives its speed (struct tri_speed); on several hosts the
 * bottleneck is assumed to be a network of 100 Gb/s per host, and the reason says so. The model is
 * rough; only the order of its figures matters:
 *
 *   dense   accumulate, sum over the ring, write the result. On several hosts NCCL first adds up
 *           inside each host, so a host sends 2n(H-1)/H.
 *   topka   one selection, one allgather of P lists, of which a host receives those of all ranks on
 *           other hosts, one merge.
 *   srs     one selection, a reduce-scatter and an allgather, 2 ceil(log2 P) messages, one merge;
 *           in each round of the reduce-scatter a merge, a cut, and the residual gets what is cut
 *           off.
 *
 * An entry read from a tensor, or merged, costs a sector of memory, however small it is.
 *
 * In these three every rank's own largest entries count, as users of a sparse allreduce expect, and
 * all sizes are fixed. The others run only by name. */
#include <stdio.h>

#include "csrc/base/types.h"
#include "csrc/sparse/algorithm.h"

static const double network = 12.5e9; /* bytes per second and host */
static const double sector = 32;      /* bytes of memory that are read or written at once */
static const double passes = 12;      /* of srs over k entries, in each step */

struct model {
    double n, k, ranks, hosts;
    double gradient, acc, entry; /* bytes of one */
    double copy, select, bandwidth, latency;
};

static struct model model_of(const struct tri_sparse_params *params,
                             const struct tri_backend *backend, int32_t hosts)
{
    return (struct model){
        .n = (double)params->count,
        .k = params->k,
        .ranks = params->size,
        .hosts = hosts,
        .gradient = (double)trib_dtype_size(params->dtype),
        .acc = (double)trib_dtype_size(params->acc),
        .entry = (double)(sizeof(uint32_t) + trib_dtype_size(params->wire)),
        .copy = backend->speed.copy,
        .select = backend->speed.select,
        .bandwidth = backend->speed.bandwidth,
        .latency = backend->speed.latency,
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
    return model->hosts > 1 ? by_host / network : by_rank / model->bandwidth;
}

static double dense(const struct model *model, const struct tri_sparse_params *params)
{
    const double bytes = model->n * model->acc;
    const double made = making(model, params) + model->n * (3 * model->acc + model->gradient);
    return made / model->copy + model->latency +
           moving(model, 2 * bytes * (model->ranks - 1) / model->ranks,
                  2 * bytes * (model->hosts - 1) / model->hosts);
}

static double topka(const struct model *model, const struct tri_sparse_params *params)
{
    const double bytes = model->k * model->entry;
    return making(model, params) / model->select + 3 * model->latency +
           writing(model, params, model->ranks * model->k) +
           moving(model, bytes * (model->ranks - 1), bytes * model->ranks * (1 - 1 / model->hosts));
}

static double srs(const struct model *model, const struct tri_sparse_params *params)
{
    const double bytes = 2 * model->k * model->entry * (model->ranks - 1) / model->ranks;
    double steps = 0; /* the logarithm, rounded up */
    for (int32_t ranks = 1; ranks < params->size; ranks *= 2)
        steps++;
    return making(model, params) / model->select + (3 + 4 * steps) * model->latency +
           steps * passes * model->k * sector / model->copy + writing(model, params, model->k) +
           moving(model, bytes, bytes * model->ranks / model->hosts);
}

struct tri_choice tri_sparse_auto(const struct tri_sparse_params *params,
                                  const struct tri_backend *backend, int32_t hosts)
{
    const struct model model = model_of(params, backend, hosts);
    const struct tri_algorithm *const algorithms[] = {&tri_sparse_dense, &tri_sparse_topka,
                                                      &tri_sparse_srs};
    const double seconds[] = {dense(&model, params), topka(&model, params), srs(&model, params)};
    struct tri_choice choice;
    size_t best = 0;
    for (size_t i = 1; i < sizeof seconds / sizeof seconds[0]; i++)
        if (seconds[i] < seconds[best])
            best = i;
    choice.algorithm = algorithms[best];
    (void)snprintf(choice.reason, sizeof choice.reason,
                   "%s: n %.3g, k %.3g, %d ranks on %d host%s; a call is guessed at dense %.3g ms, "
                   "topka %.3g, srs %.3g%s",
                   choice.algorithm->name, model.n, model.k, params->size, hosts,
                   hosts > 1 ? "s" : "", 1e3 * seconds[0], 1e3 * seconds[1], 1e3 * seconds[2],
                   hosts > 1 ? " at 100 Gb/s" : "");
    return choice;
}
