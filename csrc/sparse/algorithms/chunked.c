/* chunked: the largest of each chunk, 16-bit indices, one allgather.
 *
 * Problem. A top-k of the whole tensor needs a threshold for the whole tensor, and 32 bits for each
 * index. If each chunk of C elements gives its own largest, a chunk is chosen by itself in one
 * pass, an index is 16 bits, sizes are fixed, and places in the message say which chunk an entry is
 * of. Layers whose gradients are small are not passed over for ever.
 *
 * Paper. DeMo of Peng, Quesnelle and Kingma, "DeMo: Decoupled Momentum Optimization" (2024), and
 * SparseLoCo (arXiv 2508.15706): what training across sites uses, with an error buffer that decays
 * (`decay` of the options).
 *
 *   1. acc = gradient + residual; the K largest of each chunk are chosen into this rank's packet:
 *      header, then 16-bit indices within the chunk, then values; K slots per chunk.
 *   2. One allgather of the packets, or of the headers alone where the ranks reach each other's memory
 *      (gather.h).
 *   3. The result is the sum of all ranks' entries, in rank order.
 *   4. The decision, by the headers and the result.
 *   5. The residual loses what was chosen (in separate mode in step 1 already).
 *
 * K. A chunk of C elements gives its part of the k of the options, rounded to the nearest whole,
 * and at least one: K = max(1, round(c k / n)) with c the smaller of C and n. So k is a request:
 * what is sent is K slots for each of the ceil(n / C) chunks. The statistics call k the entries
 * that they can hold: a last chunk that is shorter than K has no more than its elements. No slots
 * for k = 0.
 *
 * Cost. 1.5 words per entry (f32; 1 with values of bf16): 1.5 K ceil(n/C) (P-1) words per rank, one
 * collective. A CUDA graph can capture it.
 *
 * Invariant. Every slot of a packet that holds an entry is in the result and has left the residual
 * of its rank; nothing else moved.
 *
 * Different from the papers in that no transform (DCT) comes before the selection, values are not
 * quantised to fewer than 16 bits, and nothing is lost: an entry leaves the residual only by a call
 * that applies it on every rank. */
#include "csrc/sparse/gather.h"

enum { VALUE_ALIGN = 16, PACKET_ALIGN = 64 };

struct chunked {
    struct tri_gathering packets;
    struct tri_entries
        lists[TRI_MAX_LISTS];  /* unpacked: this rank's, or all for a result of entries */
    struct tri_entries merged; /* only then */
};

static size_t chunks(const struct tri_sparse_params *params)
{
    return params->count / params->chunk + (params->count % params->chunk != 0);
}

/* K. */
static uint32_t each(const struct tri_sparse_params *params)
{
    if (params->k == 0)
        return 0;
    const uint64_t chunk = params->chunk < params->count ? params->chunk : params->count;
    const uint64_t nearest = (2 * chunk * params->k + params->count) / (2 * params->count);
    return nearest == 0 ? 1 : (uint32_t)nearest;
}

static size_t slots(const struct tri_sparse_params *params)
{
    return chunks(params) * each(params);
}

/* Entries of one rank: a last chunk that is shorter than K has no more than its elements. */
static size_t most(const struct tri_sparse_params *params)
{
    const size_t last = params->count % params->chunk, of_each = each(params);
    return last == 0 || last > of_each ? slots(params) : slots(params) - of_each + last;
}

static uint64_t k(const struct tri_sparse_params *params)
{
    return most(params);
}

static size_t entries(const struct tri_sparse_params *params)
{
    return (size_t)params->size * most(params);
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return entries(params) < params->count ? entries(params) : params->count;
}

static size_t value_offset(const struct tri_sparse_params *params)
{
    const size_t end = sizeof(struct tri_header) + slots(params) * sizeof(uint16_t);
    return (end + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
}

static size_t packet_bytes(const struct tri_sparse_params *params)
{
    const size_t end = value_offset(params) + slots(params) * trib_dtype_size(params->wire);
    return (end + PACKET_ALIGN - 1) / PACKET_ALIGN * PACKET_ALIGN;
}

/* The merge makes a chunk of up to so many elements in one piece, and so reads its slots once. */
static bool is_near(const struct tri_sparse_params *params)
{
    return params->chunk <= TRI_STRETCH && tri_gathers_near(params, packet_bytes(params));
}

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct chunked *chunked = own;
    chunked->packets = tri_arena_gathering(arena, params, packet_bytes(params), is_near(params), 0);
    for (int32_t rank = 0; rank < params->size; rank++)
        if (params->entries || rank == params->rank)
            chunked->lists[rank] = tri_arena_entries(arena, most(params), params->wire);
    chunked->merged = tri_arena_entries(arena, params->entries ? capacity(params) : 0, params->acc);
}

static struct tri_chunks chunks_of(const struct tri_run *run, const struct chunked *chunked,
                                   int32_t rank)
{
    char *data = tri_gathered(run, &chunked->packets, rank);
    return (struct tri_chunks){
        .index = (uint16_t *)(void *)(data + sizeof(struct tri_header)),
        .value = data + value_offset(run->params),
        .dtype = run->params->wire,
        .chunk = run->params->chunk,
        .k = each(run->params),
    };
}

static trib_status choose(struct tri_run *run, const struct chunked *chunked)
{
    const int32_t rank = run->params->rank;
    const struct tri_chunks own = chunks_of(run, chunked, rank);
    struct tri_header *header = (struct tri_header *)(void *)chunked->packets.own;
    TRI_TRY(tri_run_make_velocity(run));
    return run->kernels->chunk_select(&run->acc, !run->params->in_place, tri_run_clears(run), &own,
                                      tri_run_signing(run, header), run->scratch, run->stream);
}

static trib_status exchange(struct tri_run *run, const struct chunked *chunked)
{
    const size_t payload =
        slots(run->params) * (sizeof(uint16_t) + trib_dtype_size(run->params->wire));
    return tri_gather(run, &chunked->packets, payload);
}

static trib_status unpack(struct tri_run *run, const struct chunked *chunked, int32_t rank)
{
    const struct tri_chunks chunks = chunks_of(run, chunked, rank);
    return run->kernels->chunk_unpack(&chunks, run->params->count, &chunked->lists[rank],
                                      run->scratch, run->stream);
}

static trib_status decide(struct tri_run *run, const struct chunked *chunked)
{
    const struct tri_entries *own = &chunked->lists[run->params->rank];
    TRI_TRY(tri_gather_decide(run, &chunked->packets, UINT32_MAX));
    TRI_TRY(tri_gather_end(run, &chunked->packets));
    return tri_run_apply(run, own, tri_run_clears(run));
}

static trib_status merge_dense(struct tri_run *run, const struct chunked *chunked)
{
    const struct tri_sparse_params *params = run->params;
    struct tri_chunks ranks[TRI_MAX_LISTS];
    for (int32_t rank = 0; rank < params->size; rank++)
        ranks[rank] = chunks_of(run, chunked, rank);
    const struct tri_result out = tri_run_result_at(run, run->dense);
    return run->kernels->chunk_merge(ranks, params->size, params->count, &out, run->stream);
}

static trib_status merge_entries(struct tri_run *run, const struct chunked *chunked)
{
    for (int32_t rank = 0; rank < run->params->size; rank++)
        if (rank != run->params->rank) /* whose are unpacked in any case */
            TRI_TRY(unpack(run, chunked, rank));
    return tri_run_result(run, chunked->lists, run->params->size, &chunked->merged);
}

static trib_status chunked_run(struct tri_run *run, void *own)
{
    const struct chunked *chunked = own;
    TRI_TRY(choose(run, chunked));
    TRI_TRY(exchange(run, chunked));
    TRI_TRY(unpack(run, chunked, run->params->rank));
    TRI_TRY(run->params->entries ? merge_entries(run, chunked) : merge_dense(run, chunked));
    return decide(run, chunked);
}

const struct tri_algorithm tri_sparse_chunked = {
    .name = "chunked",
    .own_bytes = sizeof(struct chunked),
    .lay_out = lay_out,
    .entries = entries,
    .capacity = capacity,
    .run = chunked_run,
    .selects = most,
    .k = k,
};
