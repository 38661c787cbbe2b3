/* auto: which algorithm, and why.
 *
 * A model of the time of a call, in three parts: bytes that each device reads and writes, bytes that
 * go through the narrowest place, and steps. The backend says how fast it is (struct tri_speed); if
 * the ranks are on several hosts, the narrowest place is taken to be a network of 100 Gb/s a host,
 * which the reason says. The model is rough, and only the order of its figures matters:
 *
 *   dense   accumulate, sum over the ring, deliver. On several hosts NCCL adds up inside each host
 *           first, so a host sends 2n(H-1)/H.
 *   topka   one selection, one allgather of P lists, of which a host receives those of all ranks on
 *           other hosts, one merge.
 *   srs     one selection, a reduce-scatter and an allgather, 2 ceil(log2 P) steps, one merge.
 *
 * These three keep what users expect of a sparse allreduce: every rank's own largest entries count.
 * All are of fixed size. The others are chosen by name. */
#include <stdio.h>

#include "csrc/base/types.h"
#include "csrc/sparse/algorithm.h"

static const double network = 12.5e9; /* bytes a second a host */

struct model {
    double n, k, ranks, hosts;
    double gradient, acc, entry; /* bytes of one */
    double copy, link, latency;
};

static struct model model_of(const struct tri_shape *shape, const struct tri_backend *backend,
                             int32_t hosts)
{
    return (struct model){
        .n = (double)shape->count,
        .k = shape->k,
        .ranks = shape->size,
        .hosts = hosts,
        .gradient = (double)trib_dtype_size(shape->dtype),
        .acc = (double)trib_dtype_size(shape->acc),
        .entry = (double)(sizeof(uint32_t) + trib_dtype_size(shape->wire)),
        .copy = backend->speed.copy,
        .link = backend->speed.link,
        .latency = backend->speed.latency,
    };
}

/* acc is made, or, in place, read. */
static double choosing(const struct model *model, const struct tri_shape *shape)
{
    const double bytes = shape->in_place ? model->acc : model->gradient + 2 * model->acc;
    return model->n * bytes / model->copy;
}

/* The result is written: the lists are read. */
static double writing(const struct model *model, const struct tri_shape *shape, double entries)
{
    const double result = shape->entries ? entries * model->entry : model->n * model->gradient;
    return (result + entries * model->entry) / model->copy;
}

/* Bytes through a rank's link, or through a host's network. */
static double moving(const struct model *model, double by_rank, double by_host)
{
    return model->hosts > 1 ? by_host / network : by_rank / model->link;
}

static double dense(const struct model *model, const struct tri_shape *shape)
{
    const double bytes = model->n * model->acc;
    const double passes = model->n * (3 * model->acc + model->gradient) / model->copy;
    return choosing(model, shape) + passes + model->latency +
           moving(model, 2 * bytes * (model->ranks - 1) / model->ranks,
                  2 * bytes * (model->hosts - 1) / model->hosts);
}

static double topka(const struct model *model, const struct tri_shape *shape)
{
    const double bytes = model->k * model->entry;
    return choosing(model, shape) + 3 * model->latency +
           writing(model, shape, model->ranks * model->k) +
           moving(model, bytes * (model->ranks - 1), bytes * model->ranks * (1 - 1 / model->hosts));
}

static double srs(const struct model *model, const struct tri_shape *shape)
{
    const double bytes = 2 * model->k * model->entry * (model->ranks - 1) / model->ranks;
    double steps = 0; /* the logarithm, rounded up */
    for (int32_t ranks = 1; ranks < shape->size; ranks *= 2)
        steps++;
    return choosing(model, shape) + (3 + 4 * steps) * model->latency +
           writing(model, shape, model->k) +
           moving(model, bytes, bytes * model->ranks / model->hosts);
}

struct tri_choice tri_sparse_auto(const struct tri_shape *shape, const struct tri_backend *backend,
                                  int32_t hosts)
{
    const struct model model = model_of(shape, backend, hosts);
    const struct tri_algorithm *const algorithms[] = {&tri_sparse_dense, &tri_sparse_topka,
                                                      &tri_sparse_srs};
    const double seconds[] = {dense(&model, shape), topka(&model, shape), srs(&model, shape)};
    struct tri_choice choice;
    size_t best = 0;
    for (size_t i = 1; i < sizeof seconds / sizeof seconds[0]; i++)
        if (seconds[i] < seconds[best])
            best = i;
    choice.algorithm = algorithms[best];
    (void)snprintf(choice.reason, sizeof choice.reason,
                   "%s: n %.3g, k %.3g, %d ranks on %d host%s; a call is guessed at dense %.3g ms, "
                   "topka %.3g, srs %.3g%s",
                   choice.algorithm->name, model.n, model.k, shape->size, hosts,
                   hosts > 1 ? "s" : "", 1e3 * seconds[0], 1e3 * seconds[1], 1e3 * seconds[2],
                   hosts > 1 ? " at 100 Gb/s" : "");
    return choice;
}
