use super::*;
#[test]
fn survivors() {
    for named in scenarios::ALL {
        let mut survived: Option<Vec<String>> = None;
        for (seed, model) in [(1, Model::Words), (2, Model::Words), (3, Model::File { sector: 512 })] {
            let report = named.mutate(&Config::seeded(seed).budget(20_000).model(model));
            let s: Vec<String> = report.survivors.iter().map(|b| b.to_string()).collect();
            survived = Some(match survived { None => s, Some(o) => o.into_iter().filter(|b| s.contains(b) ).collect() });
        }
        println!("SURVIVORS {}: {survived:#?}", named.name);
    }
}
