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
 *	h >= 0                  hot row h holds the slot's bytes
 *	-1 (HS_NONE)            nowhere
 *	HS_PENDING(lane, h)     hot row h is being fetched by a launch of `lane`
 *	HS_PENDING(lane, HS_ROWS_MAX)  `lane` looks for a free hot row
 * An owner word of a hot row is
 *	slot >= 0               the row holds the slot iff the map says so too
 *	-1 (HS_NONE)            the row was never used
 *	HS_ORPHAN(slot)         held the slot; nobody finds it any more
 */

#include <stdint.h>

#define HS_LAYERS 512
#define HS_LANES 511
#define HS_ROW_BITS 22
#define HS_ROWS_MAX ((1u << HS_ROW_BITS) - 1) /* hot rows of a layer, at most */

#define HS_NONE (-1)
#define HS_PENDING(lane, h)                                                                        \
	((int32_t)(0x80000000u | (uint32_t)(lane) << HS_ROW_BITS | (uint32_t)(h)))
#define HS_PENDING_LANE(v) ((uint32_t)(v) << 1 >> (HS_ROW_BITS + 1))
#define HS_PENDING_ROW(v) ((uint32_t)(v)&HS_ROWS_MAX)
#define HS_ORPHAN(slot) (-2 - (slot))

/* Threads a block, where a kernel does not say otherwise. */
#define HS_THREADS 256
#define HS_WARPS (HS_THREADS / 32)

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

#define HS_EVICT_BINS 512
#define HS_STAMP_NEVER 0xc0000000u /* of a row that was never used: older than any clock */

/* An entry of the ring: a hot row and the key that it had when it was listed. */
#define HS_RING(key, h) ((uint64_t)(key) << 32 | (h))

/* The scan that lists the hot rows by age: see kernels/evict.h. */
struct hs_evict {
	uint32_t next;	  /* ticket: slices to count, then slices to list */
	uint32_t done;	  /* slices that were counted, then those that were listed */
	uint32_t counted; /* all were: bins are where each key's rows begin */
	uint32_t due;	  /* the next launch scans: all its blocks stay for it */
	uint32_t now, guard;
	uint32_t need;	  /* rows that the launch misses */
	uint32_t ripe;	  /* rows listed that nobody protects */
	uint32_t rounds;  /* that this scan may still take */
	uint32_t base;	  /* no key is below it */
	uint32_t from;	  /* keys in [from, from + HS_EVICT_BINS) are listed in this round */
	uint32_t newer;	  /* complement of the least distance from `from` beyond those */
	uint32_t tail;	  /* the ring's end when the scan began */
	uint32_t listed;  /* rows behind it */
	uint32_t pops;	  /* of the ring, after the last scan */
	uint64_t claimed; /* misses until the last scan */
	uint32_t bins[HS_EVICT_BINS];
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
	uint32_t *stamp;	   /* [rows] clock of the last use */
	uint32_t *born;		   /* [rows] clock of the fetch */
	uint64_t *ring;		   /* [mask + 1] HS_RING: rows to be evicted, oldest first */
	uint64_t *counts;	   /* [HS_COUNTS] in mapped host memory; may be NULL */

	/* Written by kernels; zero at start but for free. */
	/* The ring: pops << 32 | pushes, each modulo 2^32; pops may be beyond. */
	uint64_t free __attribute__((aligned(128)));
	uint32_t clock;				     /* launches that have finished looking up */
	uint32_t epoch;				     /* range drops */
	uint32_t recent;			     /* misses of a launch, decaying */
	uint32_t evicting;			     /* a scan is under way */
	uint32_t sort_from; /* list entries from which misses are fetched by address */
	uint64_t totals[HS_COUNTS] __attribute__((aligned(128)));
	struct hs_evict evict __attribute__((aligned(128)));
} __attribute__((aligned(128)));

/* One captured graph's stream or one eager stream: its launches never overlap
 * each other. */
struct hs_lane {
	/* step | (uint64_t)(2 * (1 + layer) + busy) << 32; 0 when it holds nothing.
	 * Rows of the layer with a stamp at or after step may be read by it. busy:
	 * step is not known yet. */
	uint64_t word;
	uint64_t arrived; /* misses << 32 | blocks with some << 16 | blocks that looked up */
	uint32_t early;	  /* complement of the earliest clock that a block saw */
	int32_t left;	  /* blocks with misses that have no rows yet; see resolve.cu */
	/* What the last block to look up decided for all. */
	uint32_t scan, sort;
};

#define HS_ORDER_BITS 14
#define HS_ORDER_BUCKETS (1u << HS_ORDER_BITS)
#define HS_ORDER_NODES (1u << 17)

struct hs_order_node {
	int32_t slot;
	uint32_t row, next; /* node + 1 */
};

/* Misses by address: see kernels/order.h. All zero between launches. */
struct hs_order {
	uint32_t owner;			  /* lane + 1 of the launch that uses it */
	uint32_t ready;			  /* the same, once it has looked up */
	uint32_t count;			  /* nodes in use */
	uint32_t next;			  /* group of buckets to be fetched */
	uint32_t done;			  /* groups that were */
	uint32_t heads[HS_ORDER_BUCKETS]; /* node + 1 */
	struct hs_order_node nodes[HS_ORDER_NODES];
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
	struct hs_lane lanes[HS_LANES + 1];
	uint32_t top __attribute__((aligned(128))); /* lanes in use are below it */
	struct hs_journal journal;
	struct hs_order order;
};

/* hs_prepare: map, owner, stamp, born, ring and counters of a layer whose host
 * part was just written. Any grid of HS_THREADS; nothing else may run. */
struct hs_prepare_args {
	struct hs_entry *entry;
};

/*
 * hs_resolve: looks up outer x inner x k slots, fetches what misses, writes the
 * list that attention reads. Element (i, j, n) of both lists is at
 * i * outer_stride + j * inner_stride + n. A warp looks up `span` (1 to 32)
 * entries at once: tiles = ceil(k / span) of them make up a list row. Any grid
 * of HS_THREADS, below 65,536 blocks; more than outer * inner * tiles / HS_WARPS
 * only wait.
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
	uint32_t span, tiles;
};

#define HS_MANY_CHUNK 1024u /* slots that are counted together */

/*
 * hs_many_mark, _rank, _gather, _remap, one after the other: a list of many
 * entries, by union. What the list mentions is brought to the staging area, in
 * address order, the hot rows among it from where they are; rows that find no
 * room there are read in place. No hot row changes. One launch uses the area at
 * a time. Of the counters, hits are the rows of the union that were hot, staged
 * those fetched over the link; mentions of either are not counted.
 * hs_many_rank and _gather: any grid of HS_THREADS; the others of whole warps.
 */
struct hs_many_args {
	struct hs_resolve_args list; /* but for span and tiles */
	uint32_t *bits;		     /* one for each slot; zero between launches */
	uint64_t *ranked;     /* [words of bits] a word of them, and << 32 the rank of its first */
	uint32_t *chunks;     /* [HS_MANY_CHUNK slots] how many are marked; zero between launches */
	uint32_t *state;      /* rows of the union; blocks that are done, zero between launches */
	int32_t *slots;	      /* [rows] the union */
	unsigned char *stage; /* of its first row */
	int32_t stage_index;  /* that row as attention sees it */
	uint32_t rows;	      /* that have room */
};

/* hs_release: the lane's last launch has been read. One thread. */
struct hs_release_args {
	struct hs_lane *lane;
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

/* Block tables as they were at the launch before: two copies of [HS_BLOCKS_ROWS]
 * [columns] after the head, of which `current` is the last. */
#define HS_BLOCKS_ROWS 1024u
struct hs_blocks_head {
	uint32_t current;
	uint32_t blocks[2][HS_BLOCKS_ROWS]; /* entries of each row, 0: not seen */
};

/*
 * hs_blocks: drops the slots of every block that stands in a row of the table
 * where no row of the launch before had it after the same entries, and saves the
 * table. ids: NULL, or the row of each block of threads, equal ones side by side.
 * lengths: slots in use of each row; NULL: not known, and entries past them are
 * whatever was there. A block of threads a row; hs_blocks_done follows it.
 */
struct hs_blocks_args {
	struct hs_table *table;
	struct hs_blocks_head *head;
	int32_t *saved;
	const int32_t *blocks;
	const int32_t *lengths;
	const int32_t *ids;
	uint64_t stride; /* entries from row to row */
	uint32_t columns, unit;
};
struct hs_blocks_done_args {
	struct hs_blocks_head *head;
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
