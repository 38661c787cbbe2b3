/* Checks of a list call's arguments.
 *
 * A list has up to thousands of tensors, and the checks are linear in their number but for two
 * things. Overlaps show in the order of the addresses, so they are sorted; a list whose tensors have
 * the order of the last one's needs no sorting. (That is a guess, which costs nothing where it is
 * wrong: what counts is how the addresses of this list turn out to lie.) And the backend is asked
 * about memory, which takes a driver call: in the order of the addresses, once for all tensors that
 * lie in one allocation, in every call. The rest is kept for a call with the same tensors: last.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/types.h"
#include "csrc/core/validate.h"
#include "csrc/lists/last.h"
#include "csrc/lists/list.h"

/* What is valid for the tensors of a type: computed once for all tensors that follow each other. */
struct bounds {
    trib_dtype dtype;
    size_t size;       /* of an element; 0: the type is not valid */
    size_t most_count; /* elements */
};

static struct bounds bounds_of(const struct tri_list *list, trib_dtype dtype)
{
    struct bounds bounds = {.dtype = dtype, .size = trib_dtype_size(dtype)};
    if (tri_list_floats_only(list) && bounds.size != 0 && !tri_dtype_is_float(dtype))
        bounds.size = 0;
    if (bounds.size != 0)
        bounds.most_count = (size_t)PTRDIFF_MAX / bounds.size;
    return bounds;
}

/* Does the tensor pass every check of check_tensor, which says what is wrong? `bytes` > 0 then. */
static bool is_plain(const trib_tensor *tensor, const struct bounds *bounds, size_t *bytes)
{
    const uintptr_t begin = (uintptr_t)tensor->data;
    if (bounds->size == 0 || tensor->reserved != 0 || tensor->count == 0 ||
        tensor->count > bounds->most_count || begin == 0 || (begin & (bounds->size - 1)) != 0)
        return false;
    *bytes = tensor->count * bounds->size;
    return *bytes <= UINTPTR_MAX - begin;
}

/* Its memory aside. */
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
    return tri_check_extent(comm, operation, &buffer, bytes);
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

/* Into what is sorted. */
static void insert(struct tri_range *ranges, size_t *n, const float *scalar, size_t index,
                   bool written)
{
    const struct tri_range range = {.begin = (uintptr_t)scalar,
                                    .end = (uintptr_t)(scalar + 1),
                                    .index = index,
                                    .written = written};
    size_t at = (*n)++;
    for (; at > 0 && ranges[at - 1].begin > range.begin; at--)
        ranges[at] = ranges[at - 1];
    ranges[at] = range;
}

/* Leave the tensors, in their order. */
static void take_out_scalars(struct tri_range *ranges, size_t n, size_t tensors)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++)
        if (ranges[i].index < tensors)
            ranges[left++] = ranges[i];
}

/* The scalar that the call reads on the device; NULL: none. */
static const float *read_scalar(const struct tri_list *list)
{
    return list->settings.scaled ? list->settings.factor.device : list->weight.device;
}

/* Do the tensors and the call's scalars overlap where they must not? */
static trib_status check_collisions(const struct trib_comm *comm, const struct tri_list *list,
                                    struct tri_range *ranges, size_t n)
{
    struct tri_range pair[2];
    const float *read = read_scalar(list);
    if (read != NULL)
        insert(ranges, &n, read, list->n + 1, false);
    if (list->total_out != NULL)
        insert(ranges, &n, list->total_out, list->n, true);
    const bool collide = tri_ranges_collide(ranges, n, pair);
    take_out_scalars(ranges, n, list->n);
    if (!collide)
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

/* In the order of the addresses: one answer is for all that follow in the same allocation. */
static trib_status check_memory(const struct trib_comm *comm, const struct tri_list *list,
                                const struct tri_range *ranges, size_t n)
{
    uintptr_t valid_end = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].end <= valid_end)
            continue;
        size_t reach = 0;
        const size_t bytes = ranges[i].end - ranges[i].begin;
        TRI_TRY(tri_ask_memory(comm, list->operation,
                               (struct tri_argument){"tensors", ranges[i].index},
                               list->tensors[ranges[i].index].data, bytes, &reach));
        valid_end = ranges[i].begin + reach;
    }
    return TRIB_OK;
}

/* Check the tensors, their memory aside, in the order of the last list's addresses if that had as
 * many, and sort their ranges. */
static trib_status read_tensors(const struct trib_comm *comm, const struct tri_list *list,
                                struct tri_last_list *last)
{
    const bool sorts = (comm->flags & TRIB_UNCHECKED) == 0;
    const bool ordered = last->n == list->n && last->nranges == list->n; /* none was empty */
    struct bounds bounds = {.size = 0};
    last->n = list->n; /* with the ranges, also of a list that fails */
    last->checked = false;
    last->nranges = 0;
    for (size_t at = 0; at < list->n; at++) {
        const size_t i = ordered ? last->ranges[at].index : at;
        const trib_tensor *tensor = &list->tensors[i];
        const uintptr_t begin = (uintptr_t)tensor->data;
        size_t bytes = 0;
        if (tensor->dtype != bounds.dtype)
            bounds = bounds_of(list, tensor->dtype);
        if (!is_plain(tensor, &bounds, &bytes))
            TRI_TRY(check_tensor(comm, list, i, &bytes));
        if (sorts && bytes != 0) /* never beyond `at` */
            last->ranges[last->nranges++] = (struct tri_range){
                .begin = begin, .end = begin + bytes, .index = i, .written = true};
    }
    (void)tri_ranges_sort(last->ranges, last->nranges);
    return TRIB_OK;
}

static trib_status check_tensors(struct trib_comm *comm, const struct tri_list *list)
{
    struct tri_last_list *last = tri_last_list(comm, list->n);
    if (last == NULL)
        return tri_fail_call(comm, list->operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to check a list of %zu tensors", list->n);
    const bool known = tri_last_checked(last, list);
    const bool scalars = read_scalar(list) != NULL || list->total_out != NULL;
    if (!known)
        TRI_TRY(read_tensors(comm, list, last));
    if ((comm->flags & TRIB_UNCHECKED) == 0) {
        TRI_TRY(check_memory(comm, list, last->ranges, last->nranges));
        if (!known || scalars)
            TRI_TRY(check_collisions(comm, list, last->ranges, last->nranges));
    }
    if (!known)
        tri_last_keep(last, list);
    return TRIB_OK;
}

trib_status tri_list_check(struct trib_comm *comm, const struct tri_list *list)
{
    const int operation = list->operation;
    TRI_TRY(tri_check_stream(comm, operation, list->stream));
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
