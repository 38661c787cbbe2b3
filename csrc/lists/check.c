/* Checks of a list call's arguments. */
#include <stdio.h>

#include "csrc/base/types.h"
#include "csrc/core/ranges.h"
#include "csrc/core/validate.h"
#include "csrc/lists/list.h"

static trib_status check_tensor(const struct trib_comm *comm, const struct tri_list *list, size_t i,
                                size_t *bytes)
{
    const trib_tensor *tensor = &list->tensors[i];
    const struct tri_buffer buffer = {.argument = {"tensors", i},
                                      .data = tensor->data,
                                      .blocks = 1,
                                      .count = tensor->count,
                                      .dtype = tensor->dtype};
    const int operation = list->operation;
    *bytes = 0;
    if (!tri_dtype_valid(tensor->dtype))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`tensors[%zu].dtype` is %d; expected one of TRIB_F16 to TRIB_U64", i,
                             tensor->dtype);
    if (operation == TRI_WEIGHTED_AVERAGE && !tri_dtype_is_float(tensor->dtype))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`tensors[%zu].dtype` is %s; a weighted average takes f16, bf16, f32 "
                             "and f64",
                             i, trib_dtype_name(tensor->dtype));
    if (list->settings.scaled && !tri_dtype_is_float(tensor->dtype))
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "`tensors[%zu].dtype` is %s; options.factor is for f16, bf16, f32 and "
                             "f64",
                             i, trib_dtype_name(tensor->dtype));
    if (tensor->reserved != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`tensors[%zu].reserved` is %u; expected 0", i, tensor->reserved);
    if (tensor->count == 0)
        return TRIB_OK;
    return tri_check_buffer(comm, operation, &buffer, bytes);
}

/* The kernels judge the weight itself: a check here would fail on this rank alone, and the others
 * would wait for its part. */
static trib_status check_weight(const struct trib_comm *comm, const struct tri_list *list)
{
    TRI_TRY(tri_check_scalar(comm, list->operation, "device_weight", list->weight.device));
    return tri_check_scalar(comm, list->operation, "device_total", list->total_out);
}

/* The name of the argument with this index: the tensors come first, then the scalars. */
static const char *name_of(const struct tri_list *list, size_t index)
{
    if (index < list->n)
        return "tensors";
    if (list->settings.scaled)
        return "options.device_factor";
    return index == list->n ? "device_total" : "device_weight";
}

static trib_status check_collisions(const struct trib_comm *comm, const struct tri_list *list,
                                    struct tri_range *ranges, size_t n)
{
    struct tri_range pair[2];
    const float *read = list->settings.scaled ? list->settings.factor.device : list->weight.device;
    if (read != NULL)
        ranges[n++] = (struct tri_range){
            .begin = (uintptr_t)read, .end = (uintptr_t)(read + 1), .index = list->n + 1};
    if (list->total_out != NULL)
        ranges[n++] = (struct tri_range){.begin = (uintptr_t)list->total_out,
                                         .end = (uintptr_t)(list->total_out + 1),
                                         .index = list->n,
                                         .written = true};
    if (!tri_ranges_collide(ranges, n, pair))
        return TRIB_OK;
    const char *names[2];
    char places[2][32] = {"", ""};
    for (int i = 0; i < 2; i++) {
        names[i] = name_of(list, pair[i].index);
        if (pair[i].index < list->n)
            (void)snprintf(places[i], sizeof places[i], "[%zu]", pair[i].index);
    }
    return tri_fail_call(comm, list->operation, TRIB_ERR_INVALID_BUFFER,
                         "`%s%s` overlaps `%s%s`: every tensor of a list needs memory of its own",
                         names[0], places[0], names[1], places[1]);
}

static trib_status check_tensors(struct trib_comm *comm, const struct tri_list *list)
{
    const bool checks = (comm->flags & TRIB_UNCHECKED) == 0;
    struct tri_range *ranges = NULL;
    if (list->n > SIZE_MAX / 2 / sizeof *ranges - 2 ||
        (checks && (ranges = tri_comm_scratch(comm, (list->n + 2) * sizeof *ranges)) == NULL))
        return tri_fail_call(comm, list->operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to check a list of %zu tensors", list->n);
    size_t used = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t bytes = 0;
        TRI_TRY(check_tensor(comm, list, i, &bytes));
        const uintptr_t begin = (uintptr_t)list->tensors[i].data;
        if (checks && bytes != 0)
            ranges[used++] = (struct tri_range){
                .begin = begin, .end = begin + bytes, .index = i, .written = true};
    }
    return checks ? check_collisions(comm, list, ranges, used) : TRIB_OK;
}

trib_status tri_list_check(struct trib_comm *comm, const struct tri_list *list)
{
    const int operation = list->operation;
    TRI_TRY(tri_check_stream(comm, operation, list->stream));
    TRI_TRY(tri_check_not_captured(comm, operation, list->stream));
    if (tri_operations[operation].reduces)
        TRI_TRY(tri_check_op(comm, operation, list->op));
    if (list->settings.scaled) {
        TRI_TRY(tri_check_factor_op(comm, operation, list->op));
        TRI_TRY(tri_check_scalar(comm, operation, "options.device_factor",
                                 list->settings.factor.device));
    }
    if (operation == TRI_BROADCAST_LIST)
        TRI_TRY(tri_check_peer(comm, operation, list->root));
    if (operation == TRI_WEIGHTED_AVERAGE)
        TRI_TRY(check_weight(comm, list));
    if (list->tensors == NULL && list->n != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`tensors` is NULL; expected %zu tensors", list->n);
    return check_tensors(comm, list);
}
