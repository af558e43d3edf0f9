use super::*;
use crash::FaultKind;
#[test]
fn survivors() {
    for named in scenarios::ALL {
        let mut survived: Option<Vec<String>> = None;
        let faults = if ["header"].contains(&named.name) { 3 } else { 0 };
        for seed in 1..7 {
            let model = if seed % 3 == 0 { Model::File { sector: 512 } } else { Model::Words };
            let config = Config::seeded(seed)
                .budget(100_000)
                .point_budget(200)
                .nested_budget(200)
                .model(model)
                .faults(faults)
                .fault_kinds(vec![FaultKind::Flip, FaultKind::Poison]);
            let report = named.mutate(&config);
            let s: Vec<String> = report.survivors.iter().map(|b| b.to_string()).collect();
            survived = Some(match survived {
                None => s,
                Some(o) => o.into_iter().filter(|b| s.contains(b)).collect(),
            });
        }
        println!("SURVIVORS {}: {survived:#?}", named.name);
    }
}
