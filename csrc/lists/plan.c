/* The layout of a list in its buckets, and the steps on the stream. */
#include "csrc/lists/plan.h"

#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/device.h"
#include "csrc/core/operation.h"

enum { SLICE_ALIGN = 16, BUCKET_ALIGN = 256, NO_BUCKET = -1 };
/* Smaller lists are faster in buckets: a backend that works on the tensors has to make sure that all
 * ranks have written theirs, and one that gets few bytes copies these, and waits once. */
enum { DIRECT_FROM_BYTES = 4096 };

/* Weighted sums of 16-bit types use f32. */
static trib_dtype bucket_type(const struct tri_list *list, trib_dtype dtype)
{
    if (list->operation != TRI_WEIGHTED_AVERAGE || dtype == TRIB_F64)
        return dtype;
    return TRIB_F32;
}

/* What is the same for all tensors of a type, by that type: their bucket (NO_BUCKET: none), bytes of
 * an element, and of one in the bucket, elements between two places where a slice may begin. No
 * division per tensor. */
struct map {
    struct place {
        int bucket;
        size_t size, element, step;
    } of[TRIB_U64 + 1];
};

static struct map map_of(const struct tri_layout *layout, const struct tri_list *list)
{
    struct map map;
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
        struct place *place = &map.of[dtype];
        const trib_dtype in_bucket = bucket_type(list, dtype);
        place->bucket = NO_BUCKET;
        place->size = trib_dtype_size(dtype);
        place->element = trib_dtype_size(in_bucket);
        place->step = SLICE_ALIGN / place->element;
        for (size_t b = 0; b < layout->nbuckets; b++)
            if (layout->buckets[b].dtype == in_bucket)
                place->bucket = (int)b;
    }
    return map;
}

static size_t aligned_offset(size_t count, const struct place *place)
{
    return (count + place->step - 1) & ~(place->step - 1);
}

static void add_bucket(struct tri_layout *layout, trib_dtype dtype)
{
    layout->buckets[layout->nbuckets].dtype = dtype;
    layout->nbuckets++;
}

/* Buckets in order of first appearance. But a weighted average puts f32 first: its total decides
 * (if that is finite and positive, so is the f64 total). It has a bucket even without tensors,
 * because the total itself is a result. */
static void choose_buckets(struct tri_layout *layout, const struct tri_list *list)
{
    bool seen[TRIB_U64 + 1] = {false};
    for (size_t i = 0; i < list->n; i++) {
        const trib_dtype dtype = bucket_type(list, list->tensors[i].dtype);
        if (list->tensors[i].count == 0 || seen[dtype])
            continue;
        seen[dtype] = true;
        add_bucket(layout, dtype);
    }
    if (list->operation != TRI_WEIGHTED_AVERAGE)
        return;
    if (layout->nbuckets == 0)
        add_bucket(layout, TRIB_F32);
    if (layout->nbuckets == 2) {
        layout->buckets[0].dtype = TRIB_F32;
        layout->buckets[1].dtype = TRIB_F64;
    }
}

/* The limit on all tensors of a list together: no object is larger, and padding does not
 * overflow. */
static const size_t most_bytes = (size_t)PTRDIFF_MAX - 4096;

static bool add_tensors(struct tri_layout *layout, const struct tri_list *list)
{
    const struct map map = map_of(layout, list);
    size_t bytes = 0;
    for (size_t i = 0; i < list->n; i++) {
        const trib_tensor *tensor = &list->tensors[i];
        if (tensor->count == 0)
            continue;
        const struct place *place = &map.of[tensor->dtype];
        /* Of its own type it has PTRDIFF_MAX bytes at most; of f32 twice that, and no overflow. */
        if (tensor->count * place->element > most_bytes - bytes)
            return false;
        bytes += tensor->count * place->element + SLICE_ALIGN;
        if (bytes > most_bytes)
            return false;
        const int b = place->bucket;
        layout->buckets[b].count = aligned_offset(layout->buckets[b].count, place) + tensor->count;
        layout->buckets[b].slices++;
        layout->slices++;
        layout->tensor_bytes += tensor->count * place->size;
    }
    return true;
}

bool tri_layout_make(struct tri_layout *out, const struct tri_list *list)
{
    memset(out, 0, sizeof *out);
    choose_buckets(out, list);
    if (!add_tensors(out, list))
        return false;
    for (size_t b = 0; b < out->nbuckets; b++) {
        out->buckets[b].count += list->operation == TRI_WEIGHTED_AVERAGE;
        out->buckets[b].offset = out->bytes;
        const size_t bytes = out->buckets[b].count * trib_dtype_size(out->buckets[b].dtype);
        out->bytes += (bytes + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
    }
    return true;
}

size_t tri_plan_bytes(const struct tri_layout *layout)
{
    return sizeof(struct tri_plan) + layout->slices * sizeof(struct tri_slice);
}

void tri_plan_slice(struct tri_plan *out, const struct tri_list *list,
                    const struct tri_layout *layout)
{
    const struct map map = map_of(layout, list);
    size_t next[TRI_MAX_BUCKETS], end[TRI_MAX_BUCKETS];
    for (size_t b = 0; b < layout->nbuckets; b++) {
        next[b] = out->first[b];
        end[b] = 0;
    }
    for (size_t i = 0; i < list->n; i++) {
        const trib_tensor *tensor = &list->tensors[i];
        if (tensor->count == 0)
            continue;
        const struct place *place = &map.of[tensor->dtype];
        const int b = place->bucket;
        const size_t offset = aligned_offset(end[b], place);
        out->slices[next[b]++] = (struct tri_slice){
            .data = tensor->data, .count = tensor->count, .offset = offset, .dtype = tensor->dtype};
        end[b] = offset + tensor->count;
    }
}

static void make_buckets(struct tri_plan *plan, struct trib_comm *comm, const struct tri_list *list,
                         const struct tri_layout *layout, const struct tri_room *room)
{
    char *data = room->data;
    double *factors = room->scalars->factors;
    const struct tri_factor *factor = &list->settings.factor;
    const bool broadcast = list->operation == TRI_BROADCAST_LIST;
    plan->nbuckets = layout->nbuckets;
    plan->first[0] = 0;
    for (size_t b = 0; b < layout->nbuckets; b++) {
        void *bucket = plan->direct ? NULL : data + layout->buckets[b].offset;
        const trib_dtype dtype = layout->buckets[b].dtype;
        const bool roomy = factor->device != NULL && dtype != TRIB_F32;
        plan->buckets[b] =
            (struct tri_bucket){.data = bucket, .count = layout->buckets[b].count, .dtype = dtype};
        plan->first[b + 1] = plan->first[b] + layout->buckets[b].slices;
        plan->calls[b] = (struct tri_call){.kind = broadcast ? TRI_BROADCAST : TRI_ALLREDUCE,
                                           .transport = comm->transport,
                                           .send = bucket,
                                           .recv = bucket,
                                           .count = layout->buckets[b].count,
                                           .dtype = dtype,
                                           .op = list->op,
                                           .peer = list->root,
                                           .scaled = list->settings.scaled,
                                           .factor = *factor,
                                           .room = roomy ? &factors[dtype - TRIB_F16] : NULL,
                                           .stream = list->stream};
    }
}

bool tri_plan_is_direct(const struct trib_comm *comm, const struct tri_list *list,
                        const struct tri_layout *layout)
{
    return comm->backend->transport->collective_list != NULL &&
           list->operation != TRI_WEIGHTED_AVERAGE && layout->bytes > DIRECT_FROM_BYTES;
}

void tri_plan_make(struct tri_plan *out, struct trib_comm *comm, const struct tri_list *list,
                   const struct tri_layout *layout, const struct tri_room *room)
{
    const bool broadcast = list->operation == TRI_BROADCAST_LIST;
    const bool is_root = broadcast && list->root == comm->rank;
    memset(out, 0, sizeof *out);
    out->backend = comm->backend;
    out->transport = comm->transport;
    out->device = comm->device;
    out->stream = list->stream;
    out->direct = tri_plan_is_direct(comm, list, layout);
    out->packs = !broadcast || is_root;
    out->unpacks = !is_root;
    out->weighted = list->operation == TRI_WEIGHTED_AVERAGE;
    out->weight = list->weight;
    out->total_out = list->total_out;
    out->decision = &room->scalars->decision;
    out->abort_flag = comm->backend->transport->abort_flag(comm->transport);
    out->counts = room->counts;
    out->capture = room->capture;
    make_buckets(out, comm, list, layout, room);
}

/* The collective of the one bucket packs it. */
static bool is_packed_below(const struct tri_plan *plan)
{
    const struct tri_transport_ops *ops = plan->backend->transport;
    return plan->nbuckets == 1 && plan->first[1] != 0 && plan->calls[0].kind == TRI_ALLREDUCE &&
           ops->packs_itself != NULL && ops->packs_itself(&plan->calls[0]);
}

void tri_plan_use_table(struct tri_plan *plan, const struct tri_layout *layout, void *table,
                        bool keeps)
{
    size_t used = 0;
    if (table == NULL || plan->direct || plan->backend->kernels->keep == NULL ||
        layout->bytes > TRI_TABLE_BUCKET)
        return;
    const bool below = is_packed_below(plan);
    for (size_t b = 0; b < layout->nbuckets; b++) {
        const size_t n = layout->buckets[b].slices, bytes = tri_table_bytes(n);
        if ((n < TRI_TABLE_FROM && !below) || bytes > TRI_TABLE_BYTES - used)
            continue;
        plan->tables[b] = (char *)table + used;
        used += bytes;
    }
    plan->table = used == 0 ? NULL : table;
    plan->keeps = keeps && used != 0;
    if (below)
        plan->calls[0].packing = (struct tri_packing){.table = plan->tables[0],
                                                      .slices = layout->buckets[0].slices,
                                                      .weighted = plan->weighted,
                                                      .weight = plan->weight};
}

static const struct tri_slice *slices_of(const struct tri_plan *plan, size_t b, size_t *out_n)
{
    *out_n = plan->first[b + 1] - plan->first[b];
    return &plan->slices[plan->first[b]];
}

static trib_status keep_slices(const struct tri_plan *plan)
{
    for (size_t b = 0; plan->keeps && b < plan->nbuckets; b++) {
        size_t n;
        const struct tri_slice *slices = slices_of(plan, b, &n);
        if (plan->tables[b] != NULL)
            TRI_TRY(plan->backend->kernels->keep(plan->tables[b], slices, n, &plan->buckets[b],
                                                 plan->stream));
    }
    return TRIB_OK;
}

/* Fewer slices are there, too, if the collective wants them. */
static bool moves_by_table(const struct tri_plan *plan, size_t b, size_t n)
{
    return plan->tables[b] != NULL && n >= TRI_TABLE_FROM;
}

static trib_status pack_bucket(const struct tri_plan *plan, size_t b)
{
    const struct tri_kernels *kernels = plan->backend->kernels;
    const struct tri_weight *weight = plan->weighted ? &plan->weight : NULL;
    size_t n;
    const struct tri_slice *slices = slices_of(plan, b, &n);
    return moves_by_table(plan, b, n)
               ? kernels->pack_kept(plan->tables[b], n, &plan->buckets[b], weight, plan->stream)
               : kernels->pack(slices, n, &plan->buckets[b], weight, plan->stream);
}

static trib_status pack_buckets(const struct tri_plan *plan)
{
    TRI_TRY(keep_slices(plan));
    for (size_t b = 0; plan->packs && b < plan->nbuckets; b++)
        if (plan->calls[b].packing.table == NULL)
            TRI_TRY(pack_bucket(plan, b));
    return TRIB_OK;
}

trib_status tri_plan_pack(const struct tri_plan *plan)
{
    uintptr_t previous = 0;
    if (!plan->packs && !plan->keeps)
        return TRIB_OK;
    TRI_TRY(tri_device_push(plan->backend, plan->device, &previous));
    const trib_status status = pack_buckets(plan);
    tri_device_pop(plan->backend, previous);
    return status;
}

static trib_status commit(const struct tri_plan *plan, const uint32_t *abort_flag)
{
    const struct tri_bucket *bucket = &plan->buckets[0];
    const char *total = NULL;
    if (plan->weighted)
        total = (const char *)bucket->data + (bucket->count - 1) * trib_dtype_size(bucket->dtype);
    const struct tri_commit job = {.abort_flag = abort_flag,
                                   .counts = plan->counts,
                                   .total = total,
                                   .total_dtype = bucket->dtype,
                                   .total_out = plan->total_out,
                                   .decision = plan->decision};
    return plan->backend->kernels->commit(&job, plan->stream);
}

static trib_status unpack_bucket(const struct tri_plan *plan, size_t b)
{
    const struct tri_kernels *kernels = plan->backend->kernels;
    size_t n;
    const struct tri_slice *slices = slices_of(plan, b, &n);
    return moves_by_table(plan, b, n)
               ? kernels->unpack_kept(plan->tables[b], n, &plan->buckets[b], plan->weighted,
                                      plan->decision, plan->stream)
               : kernels->unpack(slices, n, &plan->buckets[b], plan->weighted, plan->decision,
                                 plan->stream);
}

static trib_status unpack_buckets(const struct tri_plan *plan)
{
    TRI_TRY(commit(plan, plan->abort_flag));
    for (size_t b = 0; plan->unpacks && b < plan->nbuckets; b++)
        TRI_TRY(unpack_bucket(plan, b));
    return TRIB_OK;
}

trib_status tri_plan_unpack(const struct tri_plan *plan)
{
    uintptr_t previous = 0;
    TRI_TRY(tri_device_push(plan->backend, plan->device, &previous));
    const trib_status status = unpack_buckets(plan);
    tri_device_pop(plan->backend, previous);
    return status;
}

/* The ranks have decided together, before any of them wrote; this counts it. */
trib_status tri_plan_run_direct(const struct tri_plan *plan)
{
    static const uint32_t never = 0;
    TRI_TRY(plan->backend->transport->collective_list(plan->calls, plan->nbuckets, plan->slices,
                                                      plan->first));
    return commit(plan, &never);
}
