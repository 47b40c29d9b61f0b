/*
 * gcc 12's libgcc_eh finds unwind tables through _dl_find_object, which glibc has and musl has not: here it is, over
 * dl_iterate_phdr, which both have. Linked into the static binary by cross/build.
 */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stddef.h>

/* glibc's struct dl_find_object */
struct found {
	unsigned long long flags;
	void *start, *end;
	struct link_map *map;
	void *eh_frame;
	unsigned long long reserved[7];
};

struct search {
	size_t pc;
	struct found *result;
	int hit;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	size_t low = -1, high = 0, tables = 0;
	int i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = info->dlpi_phdr + i;
		size_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD) {
			if (start < low)
				low = start;
			if (start + p->p_memsz > high)
				high = start + p->p_memsz;
		} else if (p->p_type == PT_GNU_EH_FRAME) {
			tables = start;
		}
	}
	if (s->pc < low || s->pc >= high || !tables)
		return 0;
	s->result->flags = 0;
	s->result->start = (void *)low;
	s->result->end = (void *)high;
	s->result->map = NULL;
	s->result->eh_frame = (void *)tables;
	return s->hit = 1;
}

/* libgcc_eh refers to these weakly, and a weak reference pulls nothing out of a static library */
void *const podkeep_keep_pthread[] = {
	(void *)pthread_once, (void *)pthread_key_create, (void *)pthread_getspecific,
	(void *)pthread_setspecific, (void *)pthread_mutex_lock, (void *)pthread_mutex_unlock,
};

int _dl_find_object(void *pc, struct found *result)
{
	struct search s = { (size_t)pc, result, 0 };

	dl_iterate_phdr(look, &s);
	return s.hit ? 0 : -1;
}
