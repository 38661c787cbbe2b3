/* Switches in the environment. */
#ifndef TRI_BASE_ENVIRONMENT_H
#define TRI_BASE_ENVIRONMENT_H

#include <stdbool.h>

/* Is the variable set, and neither empty nor "0"? */
bool tri_environment_asks(const char *variable);

#endif
