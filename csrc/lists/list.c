/* Many tensors in one collective.
 *
 *   check -> layout -> plan -> on the stream: pack (or the collective does), collective, commit, unpack
 * The commit sets one word, the decision, after the collective, and the unpacking kernels look at
 * it. So a list that an abort has torn leaves every tensor as it was. */
#include "csrc/lists/list.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/issue.h"
#include "csrc/core/match.h"
#include "csrc/lists/last.h"

/* After a failed step this rank is out of step with the others: the communicator is over. */
static void raise_state(const struct tri_plan *plan, trib_status status)
{
    (void)tri_abort_raise(plan->backend->transport->abort_state(plan->transport), status,
                          tri_detail());
}

static trib_status run_steps(const struct tri_plan *plan)
{
    if (plan->direct)
        return tri_plan_run_direct(plan);
    TRI_TRY(tri_plan_pack(plan));
    TRI_TRY(plan->backend->transport->collective(plan->calls, plan->nbuckets));
    return tri_plan_unpack(plan);
}

static void run(void *argument)
{
    const struct tri_plan *plan = argument;
    const trib_status status = run_steps(plan);
    if (status != TRIB_OK)
        raise_state(plan, status);
}

/* *out: the plan of a list that is checked, and so kept; NULL if there is nothing to do. Takes its
 * scratch. */
static trib_status prepare(struct trib_comm *comm, const struct tri_list *list,
                           struct tri_plan **out, size_t *bytes)
{
    struct tri_last_list *last = comm->last_list;
    const bool weighted = list->operation == TRI_WEIGHTED_AVERAGE;
    const bool known = last->laid_out && last->weighted == weighted;
    struct tri_room room;
    *out = NULL;
    last->laid_out = known;
    if (!known && !tri_layout_make(&last->layout, list))
        return tri_fail_call(comm, list->operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`tensors` together are larger than any memory");
    const struct tri_layout *layout = &last->layout;
    if (layout->nbuckets == 0)
        return TRIB_OK;
    TRI_TRY(tri_room_take(&room, comm, list->stream,
                          tri_plan_is_direct(comm, list, layout) ? 0 : layout->bytes));
    tri_plan_make(last->plan, comm, list, layout, &room);
    if (!known) {
        tri_plan_slice(last->plan, list, layout);
        last->table = NULL;
    } else {
        tri_plan_use_table(last->plan, layout, room.table, last->table != room.table);
    }
    last->laid_out = true;
    last->weighted = weighted;
    *bytes = tri_plan_bytes(layout);
    *out = last->plan;
    return TRIB_OK;
}

/* The plan of this list is queued. */
static void count(struct trib_comm *comm, const struct tri_list *list)
{
    struct tri_last_list *last = comm->last_list;
    if (last->plan->keeps)
        last->table = last->plan->table;
    const bool sends = list->operation != TRI_BROADCAST_LIST || list->root == comm->rank;
    comm->bytes += sends ? comm->last_list->layout.tensor_bytes : 0;
    comm->calls++;
    comm->backend_calls++;
    comm->lists_queued++;
}

/* Compares what must be the same on all ranks. */
static trib_status match_list(struct trib_comm *comm, const struct tri_list *list)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < list->n; i++) {
        digest = tri_digest(digest, &list->tensors[i].count, sizeof list->tensors[i].count);
        digest = tri_digest(digest, &list->tensors[i].dtype, sizeof list->tensors[i].dtype);
    }
    const struct tri_call call = {
        .count = list->n, .op = list->op, .peer = list->root, .scaled = list->settings.scaled};
    const struct tri_signature signature = tri_signature(list->operation, &call, digest);
    return tri_match(comm, &signature, list->stream);
}

static struct tri_recorded recorded(const struct tri_list *list)
{
    const struct tri_call call = {.count = list->n, .op = list->op, .peer = list->root};
    return tri_recorded_of(list->operation, &call);
}

static trib_status queue_plan(struct trib_comm *comm, const struct tri_list *list,
                              struct tri_plan *plan, size_t bytes)
{
    TRI_TRY(tri_room_wait(comm, plan->capture, list->stream));
    const struct tri_recorded record = recorded(list);
    const trib_status status = tri_issue_run(comm, &record, run, plan, bytes, list->stream);
    /* Also after a failure: part of it may be queued. */
    const trib_status end = tri_room_mark(comm, plan->capture, list->stream);
    return status != TRIB_OK ? status : end;
}

static trib_status check_call(struct trib_comm *comm, const struct tri_list *list)
{
    if (comm->batch.open)
        return tri_fail_call(comm, list->operation, TRIB_ERR_INVALID_USAGE,
                             "a batch is open, and a batch takes no lists: call trib_batch_end "
                             "first");
    return tri_list_check(comm, list);
}

static trib_status submit(struct trib_comm *comm, const struct tri_list *list)
{
    struct tri_plan *plan = NULL;
    size_t bytes = 0;
    if ((comm->flags & TRIB_MATCH) != 0)
        TRI_TRY(match_list(comm, list));
    TRI_TRY(prepare(comm, list, &plan, &bytes));
    if (plan == NULL)
        return TRIB_OK;
    TRI_TRY(queue_plan(comm, list, plan, bytes));
    count(comm, list);
    return TRIB_OK;
}

trib_status tri_list(struct trib_comm *comm, const struct tri_list *list)
{
    trib_status status = tri_comm_usable(comm, list->operation);
    if (status == TRIB_OK)
        status = check_call(comm, list);
    return status == TRIB_OK ? tri_match_done(comm, submit(comm, list))
                             : tri_batch_fail(comm, status);
}

trib_status tri_allreduce_list_with(struct trib_comm *comm, struct tri_list *list,
                                    const trib_call_options *options)
{
    list->operation = TRI_ALLREDUCE_LIST_WITH;
    trib_status status = tri_call_settings_read(&list->settings, comm, list->operation, options);
    if (status == TRIB_OK && list->settings.variant != TRIB_VARIANT_AUTO)
        status = tri_fail_call(comm, list->operation, TRIB_ERR_UNSUPPORTED,
                               "variant %s: a list has none but auto",
                               trib_variant_name(list->settings.variant));
    if (status == TRIB_OK && list->settings.unstaged)
        status = tri_fail_call(comm, list->operation, TRIB_ERR_UNSUPPORTED,
                               "options.flags has TRIB_CALL_UNSTAGED: a list has no such flag");
    return status == TRIB_OK ? tri_list(comm, list) : tri_batch_fail(comm, status);
}

/* Rank i's part of a group's list. */
static struct tri_list part(const struct tri_list *list, const trib_tensor *const *tensors,
                            const trib_stream *streams, int32_t i)
{
    struct tri_list mine = *list;
    mine.tensors = tensors == NULL ? NULL : tensors[i];
    mine.stream = streams == NULL ? NULL : streams[i];
    return mine;
}

/* One thread has all lists, so it can compare them. */
static trib_status check_same(const struct trib_comm *comm, const struct tri_list *list,
                              const trib_tensor *first)
{
    for (size_t i = 0; i < list->n; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.*): NULL only with n == 0 */
        if (list->tensors[i].count != first[i].count || list->tensors[i].dtype != first[i].dtype)
            return tri_fail_call(comm, list->operation, TRIB_ERR_MISMATCH,
                                 "`tensors[%zu]` holds %zu elements of %s here and %zu of %s on "
                                 "rank 0: all ranks pass the same list",
                                 i, list->tensors[i].count, trib_dtype_name(list->tensors[i].dtype),
                                 first[i].count, trib_dtype_name(first[i].dtype));
    return TRIB_OK;
}

/* A stream-ordered backend gets one group of calls: one thread must not queue the ranks one by one,
 * because the first would wait for the others. The caller has begun the workspaces and
 * registered. */
static trib_status run_together(struct tri_plan *const *plans, int32_t size)
{
    const struct tri_backend *backend = plans[0]->backend;
    const size_t each = plans[0]->nbuckets;
    struct tri_call *calls = malloc((size_t)size * each * sizeof *calls);
    if (calls == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to queue a list on %d ranks", size);
    trib_status status = TRIB_OK;
    for (int32_t i = 0; i < size; i++)
        memcpy(&calls[(size_t)i * each], plans[i]->calls, each * sizeof *calls);
    for (int32_t i = 0; i < size && status == TRIB_OK; i++)
        status = tri_plan_pack(plans[i]);
    if (status == TRIB_OK)
        status = backend->transport->collective(calls, (size_t)size * each);
    const bool queued = status == TRIB_OK; /* otherwise the backend raised the state if it had to */
    for (int32_t i = 0; i < size && status == TRIB_OK; i++)
        status = tri_plan_unpack(plans[i]);
    if (queued && status != TRIB_OK)
        raise_state(plans[0], status);
    free(calls);
    return status;
}

static trib_status run_each(struct trib_group *group, struct tri_plan *const *plans,
                            const size_t *bytes)
{
    const struct tri_transport_ops *ops = group->comms[0]->backend->transport;
    trib_status status = TRIB_OK;
    int32_t i = 0;
    while (i < group->size && status == TRIB_OK) {
        status = ops->submit(group->comms[i]->transport, run, plans[i], bytes[i], plans[i]->stream);
        i += status == TRIB_OK;
    }
    if (status != TRIB_OK && i > 0) /* some ranks have it and others never will */
        raise_state(plans[0], status);
    return status;
}

/* Between register and unregister. */
static trib_status run_plans(struct trib_group *group, struct tri_plan *const *plans,
                             const size_t *bytes)
{
    trib_status status = TRIB_OK;
    int32_t begun = 0;
    while (begun < group->size && status == TRIB_OK) {
        /* NOLINTNEXTLINE(clang-analyzer-core.*): a group has a plan per rank */
        status = tri_room_wait(group->comms[begun], plans[begun]->capture, plans[begun]->stream);
        begun += status == TRIB_OK;
    }
    if (status == TRIB_OK)
        status = group->comms[0]->backend->transport->submit == NULL
                     ? run_together(plans, group->size)
                     : run_each(group, plans, bytes);
    for (int32_t i = 0; i < begun; i++) {
        const trib_status end = tri_room_mark(group->comms[i], plans[i]->capture, plans[i]->stream);
        status = status != TRIB_OK ? status : end;
    }
    return status;
}

/* NCCL takes all streams of a group in captures, or none. */
static trib_status check_captures(const struct trib_group *group, int operation,
                                  struct tri_plan *const *plans)
{
    for (int32_t i = 1; plans[0] != NULL && i < group->size; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.*): every rank has a plan, or none has */
        if ((plans[i]->capture == 0) != (plans[0]->capture == 0))
            return tri_fail_call(group->comms[i], operation, TRIB_ERR_INVALID_USAGE,
                                 "the stream of this rank is %sbeing captured, and that of rank 0 "
                                 "is%s: capture the streams of all ranks of a group, or of none",
                                 plans[i]->capture == 0 ? "not " : "",
                                 plans[i]->capture == 0 ? "" : " not");
    return TRIB_OK;
}

static trib_status queue_group(struct trib_group *group, const struct tri_list *list,
                               const trib_stream *streams, struct tri_plan *const *plans,
                               const size_t *bytes)
{
    const struct tri_issuing issuing = {group->comms, streams, (size_t)group->size};
    const struct tri_recorded record = recorded(list);
    TRI_TRY(tri_issue_begin(&issuing, &record));
    return tri_issue_end(&issuing, run_plans(group, plans, bytes));
}

static trib_status prepare_group(struct trib_group *group, const struct tri_list *list,
                                 const trib_tensor *const *tensors, const trib_stream *streams,
                                 struct tri_plan **plans, size_t *bytes)
{
    TRI_TRY(tri_comm_usable(group->comms[0], list->operation));
    for (int32_t i = 0; i < group->size; i++) {
        const struct tri_list mine = part(list, tensors, streams, i);
        TRI_TRY(check_call(group->comms[i], &mine));
        TRI_TRY(check_same(group->comms[i], &mine, tensors == NULL ? NULL : tensors[0]));
    }
    for (int32_t i = 0; i < group->size; i++) {
        const struct tri_list mine = part(list, tensors, streams, i);
        TRI_TRY(prepare(group->comms[i], &mine, &plans[i], &bytes[i]));
    }
    return check_captures(group, list->operation, plans);
}

trib_status tri_group_list(struct trib_group *group, const struct tri_list *list,
                           const trib_tensor *const *tensors, const trib_stream *streams)
{
    const size_t size = (size_t)group->size;
    struct tri_plan **plans = calloc(size, sizeof(struct tri_plan *));
    size_t *bytes = calloc(size, sizeof *bytes);
    trib_status status =
        plans == NULL || bytes == NULL
            ? tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to queue a list on %zu ranks", size)
            : prepare_group(group, list, tensors, streams, plans, bytes);
    if (status != TRIB_OK)
        (void)tri_group_fail(group, status);
    if (status == TRIB_OK && plans[0] != NULL) { /* the same on all ranks */
        status = queue_group(group, list, streams, plans, bytes);
        for (int32_t i = 0; i < group->size && status == TRIB_OK; i++) {
            const struct tri_list mine = part(list, tensors, streams, i);
            count(group->comms[i], &mine);
        }
    }
    free(plans);
    free(bytes);
    return status;
}
