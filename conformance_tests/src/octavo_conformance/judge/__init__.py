"""The judge: inputs, oracles, references, rules. Numpy only; it knows neither Octavo nor any platform.

rng         inputs, byte-identical everywhere
floats      the 16-bit types and int8 codes, and rounding to them
oracle64    every op from its meaning, in float64, on dense sequences
lowp        the same at the precision that a platform declares: what a right kernel may lose
tol         the rules, and `decide`
vacuity     the wrong answers that every case must reject
stats       goodness of fit, with stated power
measure     the functions that checks call: arrays in, `Verdict` out
"""
