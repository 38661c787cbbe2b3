/* Ids of the host backend: each is valid in this process, for one communicator. */
#ifndef TRI_HOST_ID_H
#define TRI_HOST_ID_H

#include "tributary.h"

/* Can ranks join under this id? */
trib_status tri_host_id_check(const trib_id *id);

/* All ranks have joined: from now on the check fails. */
void tri_host_id_consume(const trib_id *id);

#endif
