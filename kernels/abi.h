/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_ABI_H
#define KERNELS_ABI_H

/*
 * What host and device share: the layer table and one argument struct for each
 * kernel. Addresses are device pointers, sizes are in the unit that the comment
 * says, every count fits 32 bits unless its type says otherwise.
 *
 * The table is allocated once for a device and never moves, so a captured
 * launch finds the layer as it is when the graph is replayed.
 *
 * A map word of a slot is one of
 *	0 <= h < HS_ROWS_MAX    hot row h holds the slot's bytes
 *	HS_LISTED(h, listing)   the same, and a miss may take the row: the ring has
 *	                        an entry of the slot and this word. Who hits it
 *	                        takes it from the list first
 *	-1 (HS_NONE)            nowhere
 *	HS_PENDING(lane, h)     hot row h was fetched by a launch of `lane`, or is
 *	                        being; the lane's next pass over the layer says h
 *	HS_DOOMED(lane, h)      the same, and the slot was written since
 *	HS_PENDING(lane, HS_ROWS_MAX)  `lane` looks for a spare hot row
 * An owner word of a hot row is
 *	slot >= 0               the row holds the slot iff the map says so too
 *	-1 (HS_NONE)            the row is spare: the ring names it, nobody reads it
 *	                        (the stamp is HS_STAMP_SPARE then)
 *	HS_ORPHAN(slot)         held the slot; nobody finds it any more
 */

#include <stdint.h>

#define HS_LAYERS 512
#define HS_LANES 511
#define HS_ROW_BITS 21
#define HS_ROWS_MAX ((1u << HS_ROW_BITS) - 1) /* hot rows of a layer, at most */

#define HS_NONE (-1)
#define HS_LISTINGS 1023u /* listing: 1 to so many, in turn */
#define HS_LISTED(h, listing) ((int32_t)((uint32_t)(listing) << HS_ROW_BITS | (uint32_t)(h)))
#define HS_PENDING(lane, h)                                                                        \
	((int32_t)(0x80000000u | HS_SOUND | (uint32_t)(lane) << HS_ROW_BITS | (uint32_t)(h)))
#define HS_SOUND 0x40000000u
#define HS_DOOMED(lane, h) ((int32_t)((uint32_t)HS_PENDING(lane, h) & ~HS_SOUND))
#define HS_PENDING_LANE(v) ((uint32_t)(v) << 2 >> (HS_ROW_BITS + 2))
#define HS_PENDING_ROW(v) ((uint32_t)(v)&HS_ROWS_MAX)
#define HS_ORPHAN(slot) (-2 - (slot))

/* Threads a block, where a kernel does not say otherwise. */
#define HS_THREADS 256
#define HS_WARPS (HS_THREADS / 32)

/* List entries that a thread of hs_resolve takes at once in long lists: 16 bytes. */
#define HS_EACH 4u

enum hs_entry_state {
	HS_ENTRY_OFF, /* not started, or the window is on the device: lists are copied */
	HS_ENTRY_ON,
};

/* Which hot rows go first. Rows that a launch in flight may read never do. */
enum hs_order_by {
	HS_ORDER_USE,	/* oldest last use: exact LRU by step */
	HS_ORDER_FETCH, /* oldest fetch: FIFO */
	HS_ORDER_RANDOM,
	HS_ORDER_ALL, /* everything but the last launch's rows */
};

enum hs_count {
	HS_COUNT_LAUNCHES,
	HS_COUNT_HITS,	     /* found in a hot row or in the part that is always on the device */
	HS_COUNT_MISSES,     /* rows fetched */
	HS_COUNT_DUPLICATES, /* further mentions of a row that the same launch fetches */
	HS_COUNT_INPLACE,    /* mentions left to be read from the window */
	HS_COUNT_EVICTIONS,
	HS_COUNT_INVALIDATED,
	HS_COUNT_PADDING,  /* -1, and what lies past a row's length */
	HS_COUNT_STAGED,   /* rows fetched to the staging area, see struct hs_many_args */
	HS_COUNT_UNSTAGED, /* rows that found no room there, once a launch */
	HS_COUNTS,
};

/* Of a spare row. (A launch whose clock is that stamps rows that then stay.) */
#define HS_STAMP_SPARE 0xc0000000u

#define HS_AGES 2048 /* rows of this age less two, or more, are equally old */

/* An entry of the ring: a slot and its word in the map, for a miss to take the row
 * from it. A spare row has no slot: what is above it is negative. Once it was taken
 * it holds the slot that has the row now, and the row. */
#define HS_RING(slot, word) ((uint64_t)(uint32_t)(slot) << 32 | (uint32_t)(word))
#define HS_RING_HOLE UINT64_MAX

/* What a pass that counted leaves for the one that lists. */
struct hs_kept {
	uint32_t need;	  /* rows to be listed */
	uint32_t now;	  /* the clock that ages are seen from */
	uint32_t age;	  /* of the newest of them */
	uint32_t base;	  /* pushes so far: where the first goes */
	uint32_t listing; /* of HS_LISTED */
	uint32_t lane;	  /* that counted */
	uint32_t spares;  /* rows among them that nobody finds, so far, */
	uint32_t holes;	  /* and entries of rows that would not go */
	uint32_t marked;  /* whether any block marks rows */
};

/* One layer. The first part is written by the host at safe moments only. */
struct hs_entry {
	uint32_t state;		   /* enum hs_entry_state */
	uint32_t order;		   /* enum hs_order_by */
	uint32_t row;		   /* bytes of a KV row: a multiple of 16 */
	uint32_t rows;		   /* hot rows, below HS_ROWS_MAX */
	uint32_t mask;		   /* of the ring: a power of two >= rows, less one */
	uint32_t first;		   /* slots below it are always on the device */
	uint32_t slots;		   /* slots from here on are not ours */
	int32_t hot_index;	   /* index of hot row 0 as attention sees it */
	const unsigned char *base; /* slot 0 */
	unsigned char *hot;	   /* hot row 0 */
	int32_t *map;		   /* [slots] */
	int32_t *owner;		   /* [rows] */
	uint32_t *stamp;	   /* [rows] clock of the last use, or HS_STAMP_SPARE */
	uint32_t *born;		   /* [rows] clock of the fetch */
	uint64_t *ring;		   /* [mask + 1] spare rows, and listed ones by age */
	uint32_t *place;	   /* [2][HS_AGES] where the next row of an age goes, and where
				    * the last one's place ends; from kept.base */
	uint32_t *bits;		   /* one a slot: to be fetched by address; else 0 */
	uint64_t inverse;	   /* 2^32 / (row / 16), rounded up: n * inverse >> 32 is the
				    * row of 16-byte unit n while n * row / 16 < 2^32 */
	uint64_t *counts;	   /* [HS_COUNTS] in mapped host memory; may be NULL */

	/* Written by kernels. */
	/* The ring: pops << 32 | pushes, each modulo 2^32; pops may be beyond. */
	uint64_t free __attribute__((aligned(128)));
	uint64_t claimed;   /* misses, reads in place and unserved until the last count */
	uint64_t unserved;  /* rows of unions that were to be made hot, and found no room */
	uint32_t clock;	    /* launches whose passes are over */
	uint32_t recent;    /* misses of a launch, decaying */
	uint32_t sort_from; /* list entries from which misses are fetched by address */
	struct hs_kept kept;
	uint32_t keeper;   /* 1 + the lane whose pass lists now; 0: none */
	uint32_t spare_to; /* pops from here on find no spare row */
	uint32_t stale;	   /* entries of the ring whose row cannot be taken; modulo 2^32 */
	uint32_t listing;  /* the last one */
	uint32_t appended; /* listings while entries of older ones were left */
	uint64_t totals[HS_COUNTS] __attribute__((aligned(128)));
} __attribute__((aligned(128)));

/* Blocks of a count; those of them that counted rows by age, or looked at all rows. */
#define HS_COUNTED(blocks, bins, all)                                                              \
	((uint32_t)(blocks) | (uint32_t)(bins) << 10 | (uint32_t)(all) << 20)
#define HS_COUNTED_BLOCKS(v) ((v)&0x3ff)
#define HS_COUNTED_BINS(v) ((v) >> 10 & 0x3ff)
#define HS_COUNTED_ALL(v) ((v) >> 20)

/* One captured graph's stream or one eager stream: its launches never overlap
 * each other. All of it is scratch that only its own launches use. */
struct hs_lane {
	uint32_t counted;	       /* HS_COUNTED of the blocks of a count that are done */
	uint32_t listed;	       /* blocks of a listing that are */
	uint32_t told;		       /* blocks of a launch that are, when somebody asks */
	uint32_t arrived;	       /* blocks that have looked up, before a walk */
	uint32_t go;		       /* walks so far that may begin */
	uint32_t next;		       /* tickets of walks so far */
	uint32_t many[HS_LAYERS / 32]; /* one bit a layer: it may have misses for a walk */
	uint32_t from[HS_LAYERS];      /* pops of a layer before its last launch */
	uint32_t missed[HS_LAYERS];    /* whether the last launch over a layer did not only hit */
	uint32_t lists[HS_LAYERS];     /* whether the pass after the last count has to list */
	uint32_t bins[HS_AGES];	       /* zero but during a count */
};

enum hs_journal_what {
	HS_JOURNAL_LAUNCHES = 1, /* what every resolve launch found */
	HS_JOURNAL_LISTS = 2,	 /* the slots that it was asked for */
};

#define HS_JOURNAL_ROWS 1024u /* lists of more rows are a prefill's and not told */

/*
 * What resolve launches tell while somebody asks: records in a ring of words
 * in mapped host memory. A record that finds no room is left out; its number
 * is missed. The first part is written by the host while the device is idle.
 */
struct hs_journal {
	uint32_t what;	       /* of enum hs_journal_what; 0: nobody asks */
	uint32_t mask;	       /* of the ring: a power of two of words, less one */
	uint32_t every;	       /* lists of every n-th launch of a layer; at least 1 */
	uint32_t *ring;	       /* zero where no record lies */
	const uint64_t *taken; /* words that the host has taken; mapped host memory */

	/* Written by kernels. */
	uint64_t given __attribute__((aligned(128))); /* words so far */
	uint32_t number[2]; /* records so far, with those left out: launches, lists */
	uint32_t turns[HS_LAYERS];
};

/* How a record begins. */
struct hs_journal_head {
	uint32_t words; /* of the record with its head; written last */
	uint32_t what;	/* one of enum hs_journal_what */
	uint32_t number, layer, lane;
	uint32_t rows, k; /* of a list: rows x k int32 follow, -1 for none */
	uint32_t reserved;
	uint64_t stamp; /* ns of the device's clock */
};

/* A launch, and the layer's totals after it. */
struct hs_journal_launch {
	struct hs_journal_head head;
	uint64_t totals[HS_COUNTS];
};

struct hs_table {
	struct hs_entry entries[HS_LAYERS];
	/* 1 + the layer whose rows a lane's launch may read; 0 for none. */
	uint32_t words[HS_LANES + 1] __attribute__((aligned(128)));
	struct hs_lane lanes[HS_LANES + 1];
	struct hs_journal journal;
};

/* The passes that list rows for misses to take: see kernels/keep.h. Each by so many
 * blocks, over a layer whose last launch in this lane has been read. */
struct hs_keep {
	uint32_t count, evict; /* 1 + layer, or 0 */
	uint32_t count_blocks, evict_blocks;
};

/* hs_keep: the passes alone. count_blocks + evict_blocks blocks of HS_THREADS.
 * least: rows that must be listed, as far as there are any. release: the
 * lane's last launch, which is the one counted, has been read. */
struct hs_keep_args {
	struct hs_table *table;
	struct hs_keep keep;
	uint32_t lane, least, release;
};

/* hs_prepare: map, owner, stamp, born, ring, bits and counters of a layer whose
 * host part was just written. Any grid of HS_THREADS; nothing else may run. */
struct hs_prepare_args {
	struct hs_entry *entry;
	uint32_t any_order; /* the window is read as fast in any order: misses need none */
};

/*
 * hs_resolve: looks up outer x inner x k slots, fetches what misses, writes the
 * list that attention reads. Element (i, j, n) of both lists is at
 * i * outer_stride + j * inner_stride + n. A warp looks up `span` entries at once,
 * one a thread (1 to 32), or HS_EACH if wide (to 32 * HS_EACH): then both lists can
 * be read and written by so many, and k and span are multiples of that. tiles =
 * ceil(k / span) of them make up a list row. `blocks` of HS_THREADS do that, and
 * one block more and those of the passes follow them.
 * lengths: NULL or [outer], see struct hs_list.
 */
struct hs_resolve_args {
	struct hs_table *table;
	uint32_t layer, lane;
	const int32_t *indices;
	int32_t *out;
	const int32_t *lengths;
	int64_t outer_stride, inner_stride;
	uint32_t outer, inner, k;
	uint32_t span, tiles, blocks, wide;
	uint64_t inverse; /* 2^32 / tiles, rounded up; 0: not exact for all tiles */
	struct hs_keep keep;
};

#define HS_MANY_CHUNK 1024u /* slots that are counted together */

/*
 * hs_many_mark, _rank, _hot, _gather, _remap, one after the other: a list of many
 * entries, by union. What the list mentions is made hot, as by hs_resolve, if it is no
 * more than one of HS_MANY_PART hot rows. Otherwise no hot row changes, and it is brought
 * to the staging area, in address order, the hot rows among it from where they are; so is
 * what gets no hot row. Rows that find no room there are read in place. One launch uses
 * the area at a time. Of the counters, hits are the rows of the union that were hot,
 * staged those fetched to the area; mentions of either are not counted.
 * hs_many_rank and _gather: any grid of HS_THREADS; _mark and _remap of whole warps.
 * _hot: struct hs_resolve_args for the one list of the union, of state[2] slots.
 */
#define HS_MANY_PART 4u
struct hs_many_args {
	struct hs_resolve_args list; /* but for what comes after k */
	uint32_t *bits;		     /* one for each slot; zero between launches */
	uint64_t *ranked;     /* [words of bits] a word of them, and << 32 the rank of its first */
	uint32_t *chunks;     /* [HS_MANY_CHUNK slots] how many are marked; zero between launches */
	uint32_t *state;      /* rows of the union; blocks that are done, zero between launches;
			       * rows that are made hot */
	int32_t *slots;	      /* [rows] the union */
	int32_t *indices;     /* [rows] where its rows are for attention, if any are hot */
	unsigned char *stage; /* of its first row */
	int32_t stage_index;  /* that row as attention sees it */
	uint32_t rows;	      /* that have room */
};

/* hs_invalidate: drops count slots (int32 or int64 by width 4 or 8; negative
 * ones are skipped). One thread a slot. */
struct hs_invalidate_args {
	struct hs_entry *entry;
	const void *slots;
	uint32_t count, width;
};

/* hs_drop: drops every hot row, in every layer, of which a byte lies in [start,
 * end). Any grid of HS_THREADS. */
struct hs_drop_args {
	struct hs_table *table;
	uint64_t start, end;
};

/* hs_forget: drops the slots [e * unit, (e + 1) * unit) in every layer for each
 * of count list entries e of 4 or 8 bytes; negative ones are skipped. Any grid. */
struct hs_forget_args {
	struct hs_table *table;
	const void *list;
	uint32_t count, width, unit;
};

/* Rows of block tables as they were at a launch. */
#define HS_BLOCKS_ROWS 1024u
#define HS_BLOCKS_STRIDE(columns) (((columns) + 3) & ~3u) /* rows begin at 16 bytes */
struct hs_blocks_row {
	uint32_t blocks;  /* entries, 0: not seen, or not all of it was compared */
	uint32_t differs; /* UINT32_MAX less the first one that this row had not at the
			   * launch before, 0: it had all */
	uint32_t parts;	  /* that were compared */
};

/*
 * Of the launch before, the present one and the next one, in turn; two copies of
 * [HS_BLOCKS_ROWS][HS_BLOCKS_STRIDE] entries follow, of the first two. They are one
 * lane's from its hs_blocks to the end of its hs_blocks_done. Another one's launches
 * meanwhile compare and save nothing, and take all that is in their tables for new.
 */
#define HS_BLOCKS_TURNS 6u /* a multiple of 3 and of 2 */
struct hs_blocks_head {
	uint32_t turn;
	uint32_t owner;	   /* 1 + the lane; 0: none */
	uint32_t finished; /* blocks of its hs_blocks_done */
	struct hs_blocks_row rows[3][HS_BLOCKS_ROWS];
} __attribute__((aligned(16)));

/*
 * hs_blocks: compares each row with what it was at the launch before, and saves
 * it. hs_blocks_done, with the same arguments and grid: drops the slots of every
 * block that stands in a row of the table where no row of the launch before had it
 * after the same entries. ids: NULL, or which row each of the grid is, equal ones
 * side by side. lengths: slots in use of each row; NULL: not known, and entries
 * past them are whatever was there. `parts` blocks of HS_THREADS a row.
 */
#define HS_BLOCKS_LOADS 2u /* 16-byte loads from a row that a thread has in flight */
#define HS_BLOCKS_TILE (HS_THREADS * 4 * HS_BLOCKS_LOADS)
#define HS_BLOCKS_UNIT 2048u /* at most: a tile's slots in all layers fit 32 bits */
struct hs_blocks_args {
	struct hs_table *table;
	struct hs_blocks_head *head;
	int32_t *saved;
	const int32_t *blocks;
	const int32_t *lengths;
	const int32_t *ids;
	uint64_t stride; /* entries from row to row */
	uint32_t columns, unit, parts, lane;
};

/* A region of `rows` pieces of `bytes` (a multiple of 4), `stride` bytes apart. */
struct hs_region {
	uint64_t start, stride, bytes;
	uint64_t rows;
};

/* hs_poison: every byte of the region becomes 0xff. A warp a row; any grid. */
struct hs_poison_args {
	struct hs_region region;
};

/* hs_hash_rows: hashes[i] of row i. A warp a row; any grid. */
struct hs_hash_args {
	struct hs_region region;
	uint64_t *hashes;
};

/* hs_compare_hashes: adds count to counts[0] and the number of rows that differ
 * to counts[1] (mapped host memory; one launch at a time). One block. */
struct hs_compare_args {
	const uint64_t *left, *right;
	uint64_t *counts;
	uint32_t count;
};

#endif
