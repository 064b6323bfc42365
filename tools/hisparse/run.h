/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_RUN_H
#define TOOLS_HISPARSE_RUN_H

/* What `hisparse run` does to an environment and to a command line. */

/*
 * LD_PRELOAD with the library in front of what is there; unchanged if it is in
 * it already. The result is from malloc, NULL without memory.
 */
char *hs_run_preload(const char *present, const char *library);

/*
 * Bytes of a KV row of the model that a server's command line names by a local
 * path (`serve PATH`, `--model PATH`, `--model-path PATH`) and the KV type that
 * it asks for; 0 if it does not tell. Otherwise *model is the path, and
 * *layers how many layers it has.
 */
unsigned hs_run_row(char *const *program, const char **model, unsigned *layers);

#endif
