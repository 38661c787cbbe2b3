/* What backends and communicators can do. */
#include "csrc/core/capabilities.h"

trib_status tri_backend_capabilities(trib_capabilities *out, const struct tri_backend *backend)
{
    uint32_t version = 0;
    TRI_TRY(backend->device->version(&version));
    *out = (trib_capabilities){.size = out->size,
                               .flags = backend->capabilities(),
                               .version = version,
                               .max_ranks = backend->max_ranks};
    return TRIB_OK;
}

/* Do all ranks hear of each other? */
static bool hears(const struct trib_comm *comm)
{
    return comm->remote != NULL || comm->backend->transport->here(comm->transport) >= comm->size;
}

trib_status tri_comm_capabilities(trib_capabilities *out, const struct trib_comm *comm)
{
    TRI_TRY(tri_backend_capabilities(out, comm->backend));
    if ((comm->flags & TRIB_MATCH) != 0) {
        out->flags &= ~(uint32_t)TRIB_CAN_CAPTURE;
        out->flags |= TRIB_CAN_COMPARE;
    }
    if ((comm->adopted && comm->size > 1) ||
        (comm->config.unabortable && comm->backend->transport->open_window != NULL))
        out->flags &= ~(uint32_t)(TRIB_CAN_INTERRUPT | TRIB_CAN_WINDOWS);
    if (!hears(comm))
        out->flags &= ~(uint32_t)TRIB_CAN_HEAR;
    if (comm->backend->transport->lacks != NULL)
        out->flags &= ~comm->backend->transport->lacks(comm->transport);
    return TRIB_OK;
}
