"""Ids that are kept for what Octavo cannot do yet (several devices, experts, adapters, draft models), or that mean
nothing under this version of the contract.
"""

from __future__ import annotations

from octavo_conformance.check import declare

_COM = {
    "allreduce_sum": "all_reduce MUST give the sum over ranks: exactly for integers, within the budget for the rest.",
    "allreduce_dtypes": "all_reduce MUST keep the type of what it adds.",
    "allreduce_sizes": "all_reduce MUST be right for 0, 1, odd and unaligned sizes, on both sides of every threshold.",
    "allgather_order": "all_gather MUST join the ranks' arrays in rank order.",
    "allgather_uneven": "all_gather MUST join arrays of different lengths, or refuse them.",
    "reduce_scatter": "reduce_scatter MUST give each rank its share of the sum.",
    "all_to_all": "all_to_all MUST give part i to rank i, in rank order.",
    "broadcast": "broadcast MUST give every rank the root's bytes, for every root.",
    "send_recv": "Messages between two ranks MUST arrive whole and in order.",
    "barrier_timeout": "A barrier that a rank never reaches MUST raise on the others within the group's timeout.",
    "determinism": "Results MUST be equal on all ranks, bit for bit, every time.",
    "subgroups": "Groups that overlap MUST not disturb one another.",
    "stream_order": "A collective MUST see the computation before it.",
    "in_graph": "A collective within a compiled program MUST give what it gives outside.",
    "rank_death": "The death of a rank MUST raise on the others in time and leave no memory behind.",
    "reinit": "A group that is made and closed again and again MUST leave nothing behind.",
}
_MOE = {
    "topk_routing": "Each token MUST go to its k experts of the largest gates, the smaller id first among equals.",
    "softmax_renorm": "Gates MUST be normalised as the model says.",
    "grouped_topk": "Grouped routing MUST choose groups before experts.",
    "expert_identity": "A token MUST be run through exactly the experts it is routed to.",
    "empty_expert": "An expert without tokens MUST change nothing.",
    "one_hot_expert": "All tokens to one expert MUST all be run; none is dropped.",
    "token_permutation": "The order of tokens MUST not matter.",
    "grouped_gemm_sizes": "Groups of 0, 1, odd and very many rows MUST be right.",
    "shared_expert": "A shared expert MUST be added for every token.",
    "ep_dispatch_combine": "Sending tokens to experts on other ranks and back MUST bring each back to its place.",
}
_LORA = {
    "none_identical": "Rows without an adapter MUST be the base model's, bit for bit.",
    "single": "A row with an adapter MUST be the base model's plus the adapter's.",
    "mixed_batch": "Each row MUST get its own adapter.",
    "slot_reuse_isolation": "An adapter in a used slot MUST show nothing of the one before.",
    "rank_pad": "Adapters of every rank up to the largest MUST be right.",
    "on_quant_base": "Adapters over quantized weights MUST be right.",
    "load_while_running": "Loading an adapter MUST not change rows in flight.",
    "max_exceeded": "One adapter more than there is room for MUST be refused by a typed error.",
}

_GRAPH = {
    "eager_equals_graph": "What runs step by step MUST be what a program brings. Contract 1.0 has programs alone; "
    "gph.every_bucket compares them with one another and with the truth.",
    "mixed_eager_graph_interleave": "Programs and single steps MUST mix. Contract 1.0 has programs alone; "
    "gph.bucket_interleave mixes these.",
    "async_compile_race": "Serving while programs are compiled MUST be right. Under contract 1.0 all is compiled "
    "before the first step; gph.recompile_bound holds that.",
}
_ENGINE = {
    "preempt_swap": (
        "L5",
        "Blocks that are moved to the host and back MUST hold what they held. The engine computes anew.",
    ),
    "spec_decode_equivalence": ("L5", "Greedy tokens with a draft model MUST be those without. There is none yet."),
    "lora_isolation": ("LORA", "Requests with adapters MUST not change those without, nor one another."),
    "tp_equivalence": ("D", "A model on several devices MUST make the tokens that it makes on one."),
    "pp_equivalence": ("D", "A model in stages MUST make the tokens that it makes on one device."),
    "ep_equivalence": ("D", "A model with experts on several devices MUST make the tokens that it makes on one."),
}
for _name, _spec in _GRAPH.items():
    declare(f"gph.{_name}", level="G", module="GPH", since="1.0", spec=_spec)
for _name, (_level, _spec) in _ENGINE.items():
    declare(f"eng.{_name}", level=_level, module="ENG", since="1.0", spec=_spec)

for _level, _module, _family, _specs in (
    ("D", "COM", "com", _COM),
    ("MOE", "MOE", "moe", _MOE),
    ("LORA", "LORA", "lora", _LORA),
):
    for _name, _spec in _specs.items():
        declare(f"{_family}.{_name}", level=_level, module=_module, since="1.0", spec=_spec)
