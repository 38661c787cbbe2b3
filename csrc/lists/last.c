/* The last list of a communicator: what of it is checked, sorted and laid out. */
#include "csrc/lists/last.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/core/operation.h"

/* Bytes of a kept list: `each` for a tensor, `others` beside them. */
static const size_t each =
    sizeof(struct tri_slice) + sizeof(struct tri_range) + sizeof(trib_tensor);
static const size_t others = sizeof(struct tri_last_list) + sizeof(struct tri_plan) +
                             TRI_LIST_SCALARS * sizeof(struct tri_range);

/* All parts are multiples of a pointer's alignment. */
static struct tri_last_list *make(size_t n)
{
    if (n > (SIZE_MAX - others) / each)
        return NULL;
    struct tri_last_list *last = malloc(others + n * each);
    if (last == NULL)
        return NULL;
    *last = (struct tri_last_list){.most = n};
    last->plan = (struct tri_plan *)(last + 1);
    last->ranges = (struct tri_range *)&last->plan->slices[n];
    last->tensors = (trib_tensor *)(last->ranges + n + TRI_LIST_SCALARS);
    return last;
}

struct tri_last_list *tri_last_list(struct trib_comm *comm, size_t n)
{
    if (comm->last_list != NULL && comm->last_list->most >= n)
        return comm->last_list;
    struct tri_last_list *last = make(n);
    if (last == NULL)
        return NULL;
    free(comm->last_list);
    comm->last_list = last;
    return last;
}

bool tri_list_floats_only(const struct tri_list *list)
{
    return list->operation == TRI_WEIGHTED_AVERAGE || list->settings.scaled;
}

bool tri_last_checked(const struct tri_last_list *last, const struct tri_list *list)
{
    return last->checked && last->n == list->n && last->floats_only == tri_list_floats_only(list) &&
           (list->n == 0 ||
            memcmp(last->tensors, list->tensors, list->n * sizeof *list->tensors) == 0);
}

void tri_last_keep(struct tri_last_list *last, const struct tri_list *list)
{
    if (list->n != 0)
        memcpy(last->tensors, list->tensors, list->n * sizeof *list->tensors);
    last->checked = true;
    last->floats_only = tri_list_floats_only(list);
    last->laid_out = false;
}
