(function () {
  'use strict';
  var plots = Array.from(document.querySelectorAll('.plot')).map(function (plot) {
    var tips = {};
    plot.querySelectorAll('.tip').forEach(function (tip) {
      tips[tip.getAttribute('x')] = tip.querySelector('title').textContent;
    });
    var svg = plot.querySelector('svg');
    return { svg: svg, tips: tips, cross: plot.querySelector('.cross'),
      told: plot.parentNode.querySelector('output') };
  });
  function show(share) {
    plots.forEach(function (plot) {
      var box = plot.svg.getBoundingClientRect();
      var left = plot.svg.parentNode.getBoundingClientRect().left;
      plot.cross.style.display = share === null ? 'none' : 'block';
      if (share === null) { plot.told.textContent = ''; return; }
      plot.cross.style.left = (box.left - left + share * box.width) + 'px';
      var bin = Math.floor(share * plot.svg.viewBox.baseVal.width);
      plot.told.textContent = plot.tips[bin] || '';
    });
  }
  plots.forEach(function (plot) {
    plot.svg.addEventListener('pointermove', function (event) {
      var box = plot.svg.getBoundingClientRect();
      show(Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.9999));
    });
    plot.svg.addEventListener('pointerleave', function () { show(null); });
  });
}());
