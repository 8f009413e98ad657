from hpcbench_example_csv import CsvReport, safe


def test_a_formula_is_text() -> None:
    assert safe("=1+1") == "'=1+1"
    assert safe(-1.5) == -1.5


def test_every_metric_is_a_row() -> None:
    entry = {"value": 0.5, "low": None, "high": None, "n": 2, "clusters": 1, "signature": "anls|v1"}
    tables = {
        "id": "e",
        "metrics": {"run_tasks": {"a": {"coverage": 1.0, "metrics": {"anls": entry, "x": None}}}},
    }
    text = str(CsvReport({"delimiter": ";"}).render(tables)["metrics.csv"])
    assert text.splitlines()[1:] == ["e;a;anls;0.5;;;2;1;1.0;anls|v1", "e;a;x;;;;0;0;1.0;"]
