"""Error bars and comparisons for scores of samples that come in documents; imports nothing else of hpcbench.

Questions about one document (or page, or photo series) are not independent: an interval that assumes
independence is too narrow, up to threefold (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640). So
each value has a cluster, its document, and documents are the sampling unit:

- a mean, share or ratio of sums (ANLS, accuracy, corpus CER, micro F1): the Bayesian bootstrap of clusters
  with a pseudo-cluster at the bound, Clopper and Pearson's interval where values are right or wrong;
  Student's t with the clustered standard error CR1 (G-1 degrees of freedom for G clusters) for very many
  clusters, and for values without a bound (`limits`);
- any other value computed from sums (BLEU, macro F1): the same for the jackknife's pseudo-values;
- a quantile (the 95th percentile of a latency): order statistics, which assume no form of distribution, by
  clusters where there are any;
- repeated answers to the same samples: the chance that one of k attempts succeeds, or all of k (`pass_at`,
  `pass_all`);
- two runs: differences by sample, clustered by document, with a verdict (`compare`), and Holm's correction
  for many (`with_holm`);
- two alternating arms: looks at the comparison while it runs (`nominal_levels`), and removal of the order
  effect (`crossover`);
- one figure over many nights: changes of its level, at a stated risk for all nights (`changes`);
- verdicts of a judge that errs, with human labels of some (`corrected_share`, `prediction_powered`);
- before a run: the number of documents needed, also of unequal sizes (`samples_needed`, `detectable`).

Where the data do not suffice, `low` and `high` are None and `method` says why; no number is invented. Sums do
not depend on the order of addition, and clusters are sorted before they are weighted or swapped: the same
data in another order, or with other cluster names, gives the same bytes. Functions take sequences or numpy
arrays; with arrays of values and integer clusters, a million values take well under a second.
"""

from hpcbench.statistics.aggregate import (
    combine_of,
    names_of,
    parts_interval,
    parts_table,
    table_interval,
)
from hpcbench.statistics.changes import Change, changes
from hpcbench.statistics.clusters import (
    MANY_CLUSTERS,
    NO_SPREAD,
    ONE_CLUSTER,
    Bounds,
    Interval,
    cluster_sums,
)
from hpcbench.statistics.intervals import (
    clustered_standard_error,
    mean_interval,
    proportion_interval,
)
from hpcbench.statistics.judges import (
    Agreement,
    agreement,
    corrected_share,
    difference_of_means,
    prediction_powered,
)
from hpcbench.statistics.paired import (
    Comparison,
    Pairs,
    Verdict,
    compare,
    documents_needed,
    holm,
    judged,
    mcnemar,
    pair,
    with_holm,
)
from hpcbench.statistics.pass_at_k import pass_all, pass_at
from hpcbench.statistics.power import (
    design_effect,
    detectable,
    fewest_documents,
    samples_needed,
    usual_cv,
)
from hpcbench.statistics.quantiles import (
    clustered_quantile_interval,
    early_stopping_estimate,
    fewest_for_quantile,
    quantile_interval,
)
from hpcbench.statistics.recovered import log_widths
from hpcbench.statistics.sequential import crossover, nominal_levels, spent
from hpcbench.statistics.sums import ratio, ratio_interval, sums_interval
from hpcbench.statistics.variance import intraclass_correlation

__all__ = [
    "MANY_CLUSTERS",
    "NO_SPREAD",
    "ONE_CLUSTER",
    "Agreement",
    "Bounds",
    "Change",
    "Comparison",
    "Interval",
    "Pairs",
    "Verdict",
    "agreement",
    "changes",
    "cluster_sums",
    "clustered_quantile_interval",
    "clustered_standard_error",
    "combine_of",
    "compare",
    "corrected_share",
    "crossover",
    "design_effect",
    "detectable",
    "difference_of_means",
    "documents_needed",
    "early_stopping_estimate",
    "fewest_documents",
    "fewest_for_quantile",
    "holm",
    "intraclass_correlation",
    "judged",
    "log_widths",
    "mcnemar",
    "mean_interval",
    "names_of",
    "nominal_levels",
    "pair",
    "parts_interval",
    "parts_table",
    "pass_all",
    "pass_at",
    "prediction_powered",
    "proportion_interval",
    "quantile_interval",
    "ratio",
    "ratio_interval",
    "samples_needed",
    "spent",
    "sums_interval",
    "table_interval",
    "usual_cv",
    "with_holm",
]
