/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_STORY_H
#define SRC_MEMORY_STORY_H

/* The arithmetic of what is told: how much KV a device and a pool hold together. Options
 * in, bytes out, no state. */

#include <stddef.h>

/* Bytes per token and layer that stay on the device: the indexer's key
 * (DeepSeek-V3.2: 128 + 4) and our map's entry. */
#define HS_STORY_KEY 132
#define HS_STORY_MAP 4
/* What the cache notes of a hot row. */
#define HS_STORY_HOT 28

/* The hot rows of all layers, where both numbers were given; 0: by the tokens. They
 * leave half of the room to KV. */
size_t hs_story_promised(size_t room);

/* What is told for so much free memory, `fixed` of which is for lists and graphs: the
 * most for which the device holds keys, maps and hot rows, and the device and the pool
 * all of it. */
size_t hs_story_told(size_t device, size_t host, size_t fixed);

#endif
