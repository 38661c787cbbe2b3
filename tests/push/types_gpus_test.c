/* Between processes, a rank and a GPU each: allreduces and reduce_scatters of every type by every reduction, of
 * sizes of push and of pull, and of every type by the name of each variant; eager, and replayed by a graph. Every
 * bit is right, and nothing behind the result is written. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/reference.h"
#include "tests/push/processes.h"

enum { BEHIND = 64, POISON = 0xa5, REPLAYS = 3, TWO_SHOT_BYTES = 1 << 20, LARGE_BYTES = LARGE * 4 };
enum { SIZES = 4 }; /* of calls */

struct call {
    struct reference of;
    trib_variant variant;
    bool scatters; /* a reduce_scatter, not an allreduce */
    bool ours;     /* kernels of the library serve it, and NCCL's averages are not exact */
    size_t count;  /* of recv */
    size_t bytes;  /* of recv, too */
    char *send, *recv;
};

static void queue(const struct rank *r, const void *argument)
{
    const struct call *call = argument;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = call->variant;
    CHECK_OK((call->scatters ? trib_reduce_scatter_with : trib_allreduce_with)(
        r->comm, call->send, call->recv, call->count, call->of.dtype, call->of.op, &options,
        r->stream));
}

static void check_result(const struct rank *r, const struct call *call)
{
    char *found = malloc(call->bytes + BEHIND), *wanted = malloc(call->bytes + BEHIND);
    memset(wanted, POISON, call->bytes + BEHIND);
    reference_reduced(wanted, &call->of, call->scatters ? (size_t)r->rank * call->count : 0,
                      call->count);
    MUST(cudaMemcpy(found, call->recv, call->bytes + BEHIND, cudaMemcpyDeviceToHost));
    const bool close = !call->ours && call->of.op == TRIB_AVG &&
                       reference_close(found, wanted, call->of.dtype, call->count, r->size);
    const bool behind = memcmp(found + call->bytes, wanted + call->bytes, BEHIND) == 0;
    CHECK_MSG(behind && (close || memcmp(found, wanted, call->bytes) == 0),
              "rank %d: %s of %zu %s, %s, variant %s: not the reference's bits", r->rank,
              call->scatters ? "reduce_scatter" : "allreduce", call->count,
              trib_dtype_name(call->of.dtype), trib_op_name(call->of.op),
              trib_variant_name(call->variant));
    free(found);
    free(wanted);
}

/* Fill what is sent, and run the call. */
static void run_call(const struct rank *r, struct call *call)
{
    const size_t n = call->scatters ? call->count * (size_t)r->size : call->count;
    const size_t sent = n * trib_dtype_size(call->of.dtype);
    char *image = malloc(sent);
    call->bytes = call->count * trib_dtype_size(call->of.dtype);
    reference_input(image, &call->of, r->rank, 0, n);
    MUST(cudaMalloc((void **)&call->send, sent));
    MUST(cudaMalloc((void **)&call->recv, call->bytes + BEHIND));
    MUST(cudaMemcpy(call->send, image, sent, cudaMemcpyHostToDevice));
    MUST(cudaMemset(call->recv, POISON, call->bytes + BEHIND));
    MUST(cudaDeviceSynchronize());
    make_calls(r, REPLAYS, queue, call);
    CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
    check_result(r, call);
    MUST(cudaFree(call->send));
    MUST(cudaFree(call->recv));
    free(image);
}

/* What pull serves of a plain buffer goes through memory of the library, which is counted. */
static void run_large(const struct rank *r, struct call *call)
{
    const uint64_t before = staged_calls(r);
    call->count = LARGE_BYTES / trib_dtype_size(call->of.dtype);
    call->scatters = false;
    call->ours = true;
    run_call(r, call);
    CHECK(staged_calls(r) - before == 1);
}

/* Does push serve calls of the size with that index? Over PCI Express and of many ranks the first two; of others
 * all, but reduce_scatters of 3 and 4 ranks not the last (PEERS). */
static bool pushes(const struct rank *r, const struct call *call, int size)
{
    if (r->size > MEASURED || !r->shared->nvlink)
        return size < SIZES - 2;
    return size < SIZES - 1 || !call->scatters || r->size == 2;
}

/* Does the variant? */
static bool serves(const struct rank *r, const struct call *call, int size)
{
    if (call->variant == TRIB_VARIANT_PUSH)
        return pushes(r, call, size);
    return call->variant != TRIB_VARIANT_TWO_SHOT || !call->scatters;
}

static bool is_ours(const struct rank *r, const struct call *call, int size)
{
    return call->variant == TRIB_VARIANT_AUTO ? pushes(r, call, size)
                                              : call->variant != TRIB_VARIANT_NCCL;
}

static void run_sizes(const struct rank *r, struct call *call)
{
    const size_t counts[SIZES] = {1, 129, 4099,
                                  TWO_SHOT_BYTES / trib_dtype_size(call->of.dtype) + 1};
    for (int scatters = 0; scatters < 2; scatters++)
        for (int size = 0; size < SIZES && !check_failed(); size++) {
            call->scatters = scatters != 0;
            if (!serves(r, call, size))
                continue;
            call->count = counts[size];
            call->ours = is_ours(r, call, size);
            call->of.seed++;
            run_call(r, call);
        }
}

/* A reduction for each type, in turn. */
static void run_variants(const struct rank *r, struct call *call)
{
    call->of.op = TRIB_SUM + call->of.dtype % TRIB_AVG;
    for (trib_variant variant = TRIB_VARIANT_NCCL; variant <= TRIB_VARIANT_TWO_SHOT; variant++) {
        const bool pulls = variant == TRIB_VARIANT_ONE_SHOT || variant == TRIB_VARIANT_TWO_SHOT;
        call->variant = variant;
        if (!pulls || pulls_by_name(r))
            run_sizes(r, call);
    }
}

static void run_type(const struct rank *r, struct call *call)
{
    call->variant = TRIB_VARIANT_AUTO;
    for (trib_op op = TRIB_SUM; op <= TRIB_AVG && !check_failed(); op++) {
        call->of.op = op;
        if (op == TRIB_AVG && !tri_dtype_is_float(call->of.dtype))
            continue;
        run_sizes(r, call);
        if (has_pull(r) && !check_failed())
            run_large(r, call);
    }
    run_variants(r, call);
}

static void run_types(int index, int n, void *argument)
{
    struct rank r;
    struct call call = {.of = {.size = n, .seed = 1}};
    if (!open_rank(&r, argument, index, n))
        return;
    CHECK(peer_bytes(&r) > 0);
    for (trib_dtype dtype = TRIB_F16; trib_dtype_size(dtype) > 0 && !check_failed(); dtype++) {
        call.of.dtype = dtype;
        run_type(&r, &call);
    }
    close_rank(&r);
}

int main(void)
{
    const struct machine machine = look_at_machine();
    if (machine.gpus < 2 || !machine.reach)
        check_skip("types between processes: there are no 2 GPUs that reach each other");
    for (int size = machine.fewest; machine.reach && size <= machine.gpus && size <= PROCESSES_MAX;
         size++)
        for (int captured = 0; captured < 2; captured++)
            run_case(&machine, "every type by every reduction", run_types, size, 1, SEES_ALL,
                     captured != 0);
    return check_finish("types_gpus_test");
}
