/* Ids of the host backend: valid in this process, once. */
#ifndef TRI_HOST_ID_H
#define TRI_HOST_ID_H

#include "tributary.h"

/* May ranks meet under this id? */
trib_status tri_host_id_check(const trib_id *id);

/* They have met: from now on the check fails. */
void tri_host_id_consume(const trib_id *id);

#endif
