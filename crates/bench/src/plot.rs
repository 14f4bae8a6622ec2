//! Groups of bars on a logarithmic scale, as SVG.

use std::fmt::Write as _;

/// Bars of one colour, one per group.
#[derive(Debug)]
pub struct Series {
    /// What the legend says.
    pub name: &'static str,
    /// One for each group, above 0: the scale is logarithmic.
    pub values: Vec<f64>,
}

/// Figures by group and series.
#[derive(Debug)]
pub struct Bars<'a> {
    /// What stands above.
    pub title: &'static str,
    /// Of all values.
    pub unit: &'static str,
    /// The names of the groups, from left to right.
    pub groups: &'a [String],
    /// Up to four, which differ in colour.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 32.0;
/// Colours that colour-blind people tell apart (Okabe and Ito).
const COLOURS: [&str; 4] = ["#999999", "#e69f00", "#56b4e9", "#009e73"];

impl Bars<'_> {
    /// The drawing.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
            self.title
        );
        self.legend(&mut svg);
        self.scale(&mut svg);
        self.bars(&mut svg);
        svg + "</svg>\n"
    }

    fn legend(&self, svg: &mut String) {
        for (at, series) in self.series.iter().enumerate() {
            let x = LEFT + at as f64 * 130.0;
            let colour = COLOURS[at % COLOURS.len()];
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"40\">{}</text>",
                x + 17.0,
                series.name
            );
        }
    }

    /// The powers of ten that hold all values.
    fn decades(&self) -> (i32, i32) {
        let values =
            || self.series.iter().flat_map(|series| &series.values).map(|value| value.log10());
        let least = values().fold(f64::INFINITY, f64::min).floor();
        let most = values().fold(f64::NEG_INFINITY, f64::max).ceil();
        if least < most { (least as i32, most as i32) } else { (least as i32, least as i32 + 1) }
    }

    fn y(&self, value: f64) -> f64 {
        let (least, most) = self.decades();
        let part = (value.log10() - f64::from(least)) / f64::from(most - least);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }

    fn scale(&self, svg: &mut String) {
        let (least, most) = self.decades();
        for decade in least..=most {
            let value = 10f64.powi(decade);
            let y = self.y(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value} {}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                self.unit
            );
        }
    }

    fn bars(&self, svg: &mut String) {
        let group_width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        let width = group_width * 0.8 / self.series.len().max(1) as f64;
        for (at, name) in self.groups.iter().enumerate() {
            let left = LEFT + (at as f64 + 0.1) * group_width;
            for (which, series) in self.series.iter().enumerate() {
                let (x, y) = (left + which as f64 * width, self.y(series.values[at]));
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
                     <title>{name}, {}: {:.1} {}</title></rect>",
                    width - 1.0,
                    HEIGHT - BOTTOM - y,
                    COLOURS[which % COLOURS.len()],
                    series.name,
                    series.values[at],
                    self.unit
                );
            }
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                left + group_width * 0.4,
                HEIGHT - BOTTOM + 18.0
            );
        }
    }
}
