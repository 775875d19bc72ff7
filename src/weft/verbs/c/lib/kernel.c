/* The symbols between libibverbs, its drivers and the kernel, so that libraries that link them can be loaded. Nothing calls
   them: weft's adapter has no kernel driver. */
#include "weft.h"

void ibv_register_driver(const char *name, void *init) { (void)name, (void)init; }
void ibv_copy_ah_attr_from_kern(void *to, void *from) { (void)to, (void)from, weft_lacks("ibv_copy_ah_attr_from_kern"); }
void ibv_copy_qp_attr_from_kern(void *to, void *from) { (void)to, (void)from, weft_lacks("ibv_copy_qp_attr_from_kern"); }
void ibv_copy_path_rec_from_kern(void *to, void *from) { (void)to, (void)from, weft_lacks("ibv_copy_path_rec_from_kern"); }
void ibv_copy_path_rec_to_kern(void *to, void *from) { (void)to, (void)from, weft_lacks("ibv_copy_path_rec_to_kern"); }
